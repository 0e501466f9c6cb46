//! The books: which list of each session is the newest, and which readers have it.
//!
//! Lists of a session are numbered from 1, in the order in which they are published.

/// How many changes all sessions together may have under way before times are forgotten.
const MEMORY: usize = 1 << 17;

pub(crate) struct Board {
    sessions: Vec<Session>,
    /// When each of a session's last `depth` changes was due, in nanoseconds.
    due: Vec<u64>,
    depth: usize,
    behind: usize,
}

#[derive(Clone, Copy, Default)]
struct Session {
    newest: u32,
    /// Readers that have the newest list.
    current: u32,
}

impl Board {
    pub(crate) fn new(sessions: usize) -> Self {
        let depth = (MEMORY / sessions).next_power_of_two();
        Self { sessions: vec![Session::default(); sessions], due: vec![0; depth * sessions], depth, behind: 0 }
    }

    pub(crate) fn sessions(&self) -> usize {
        self.sessions.len()
    }

    /// Readers that lack the newest list of their session.
    pub(crate) fn behind(&self) -> usize {
        self.behind
    }

    /// A change is made now that was due then; returns its number.
    pub(crate) fn publish(&mut self, session: u32, due: u64) -> u32 {
        let books = &mut self.sessions[session as usize];
        books.newest += 1;
        self.behind += std::mem::take(&mut books.current) as usize;
        let newest = books.newest;
        let place = self.place(session, newest);
        self.due[place] = due;
        newest
    }

    /// A reader comes that has nothing yet.
    pub(crate) fn join(&mut self) {
        self.behind += 1;
    }

    /// A reader goes that had that list last.
    pub(crate) fn leave(&mut self, session: u32, last: u32) {
        let books = &mut self.sessions[session as usize];
        if last == books.newest && last > 0 { books.current -= 1 } else { self.behind -= 1 }
    }

    /// A reader that had list `before` gets list `now`; returns since when it was due.
    pub(crate) fn receive(&mut self, session: u32, before: u32, now: u32) -> Result<u64, Confusion> {
        let books = &mut self.sessions[session as usize];
        if now > books.newest || now < before {
            return Err(Confusion { session, before, now, newest: books.newest });
        }
        if now == books.newest && before != now {
            books.current += 1;
            self.behind -= 1;
        }
        Ok(self.due[self.place(session, now)])
    }

    fn place(&self, session: u32, number: u32) -> usize {
        session as usize * self.depth + (number as usize & (self.depth - 1))
    }
}

/// A server sent what it cannot have, or went back.
#[derive(Debug)]
pub(crate) struct Confusion {
    session: u32,
    before: u32,
    now: u32,
    newest: u32,
}

impl std::fmt::Display for Confusion {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { session, before, now, newest } = self;
        write!(f, "a reader of session {session} that had list {before} got list {now}, where the newest is {newest}")
    }
}

impl std::error::Error for Confusion {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reader_is_behind_until_it_has_the_newest_list() {
        let mut board = Board::new(2);
        assert_eq!(board.publish(1, 10), 1);
        board.join();
        board.join();
        assert_eq!((board.receive(1, 0, 1).unwrap(), board.behind()), (10, 1));
        assert_eq!((board.publish(1, 20), board.behind()), (2, 2));
        assert_eq!((board.receive(1, 1, 2).unwrap(), board.behind()), (20, 1));
        board.leave(1, 2);
        assert_eq!(board.behind(), 1);
        board.leave(1, 0);
        assert_eq!(board.behind(), 0);
    }

    #[test]
    fn a_list_from_the_future_or_the_past_is_noticed() {
        let mut board = Board::new(1);
        board.publish(0, 0);
        board.join();
        assert!(board.receive(0, 0, 2).is_err());
        board.publish(0, 0);
        board.receive(0, 0, 2).unwrap();
        assert!(board.receive(0, 2, 1).is_err());
    }
}
