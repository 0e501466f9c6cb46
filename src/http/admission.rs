//! How many streams one session, and one client, may have.
//!
//! Promises:
//! - A place is held for as long as the stream that it was taken for, however that ends.
//! - Only what has streams is remembered, and only where there is a limit.

use std::{
    collections::HashMap,
    hash::Hash,
    num::NonZeroUsize,
    sync::{Arc, Mutex, MutexGuard},
};

use tokio::sync::OwnedSemaphorePermit;

use super::{client::Client, problem::Problem};
use crate::{id::SessionId, sync::lock, traffic::Counted};

/// The limits, and what is taken of them.
#[derive(Debug, Default)]
pub(crate) struct Admission {
    sessions: Option<Arc<Places<SessionId>>>,
    clients: Option<Arc<Places<Client>>>,
}

/// What a connection occupies from its first byte to its last, whoever serves it.
#[derive(Debug)]
pub(crate) struct Seat {
    pub(crate) _place: OwnedSemaphorePermit,
    pub(crate) _counted: Counted,
}

/// What one stream holds of the limits.
#[derive(Debug)]
pub(crate) struct Admitted {
    _sessions: Vec<Place<SessionId>>,
    _client: Option<Place<Client>>,
}

impl Admission {
    pub(crate) fn new(per_session: Option<NonZeroUsize>, per_client: Option<NonZeroUsize>) -> Self {
        Self { sessions: per_session.map(Places::new), clients: per_client.map(Places::new) }
    }

    /// Lets a stream of those sessions in, or says why not. None for whom nothing need be held.
    pub(crate) fn admit<'a>(
        &self,
        sessions: impl Iterator<Item = &'a SessionId>,
        client: Option<Client>,
    ) -> Result<Option<Box<Admitted>>, Problem> {
        let client = self.clients.as_ref().zip(client).map(|(places, client)| {
            places.take(client).map_err(|limit| Problem::TooManyStreams(format!("your address has {limit} streams")))
        });
        let client = client.transpose()?;
        let sessions = self.sessions.as_ref().map_or(Ok(Vec::new()), |places| {
            let taken = sessions.map(|session| {
                places
                    .take(session.clone())
                    .map_err(|limit| Problem::TooManyStreams(format!("session {session} has {limit} streams")))
            });
            taken.collect()
        })?;
        let nothing = client.is_none() && sessions.is_empty();
        Ok((!nothing).then(|| Box::new(Admitted { _sessions: sessions, _client: client })))
    }
}

/// Places of which each key has so many.
#[derive(Debug)]
struct Places<K> {
    limit: NonZeroUsize,
    taken: Mutex<HashMap<K, usize>>,
}

/// One of them, until it is dropped.
#[derive(Debug)]
struct Place<K: Eq + Hash> {
    places: Arc<Places<K>>,
    key: K,
}

impl<K: Eq + Hash + Clone> Places<K> {
    fn new(limit: NonZeroUsize) -> Arc<Self> {
        Arc::new(Self { limit, taken: Mutex::default() })
    }

    /// A place, or the limit that is reached.
    fn take(self: &Arc<Self>, key: K) -> Result<Place<K>, NonZeroUsize> {
        let mut all = self.lock();
        let taken = all.get(&key).copied().unwrap_or_default();
        if taken >= self.limit.get() {
            return Err(self.limit);
        }
        all.insert(key.clone(), taken + 1);
        Ok(Place { places: Arc::clone(self), key })
    }
}

impl<K> Places<K> {
    fn lock(&self) -> MutexGuard<'_, HashMap<K, usize>> {
        lock(&self.taken)
    }
}

impl<K: Eq + Hash> Drop for Place<K> {
    fn drop(&mut self) {
        let mut all = self.places.lock();
        if let Some(taken) = all.get_mut(&self.key) {
            *taken -= 1;
            if *taken == 0 {
                all.remove(&self.key);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_come_back_and_nothing_is_remembered_of_who_left() {
        let places = Places::new(NonZeroUsize::new(2).unwrap());
        let held = [places.take("a").unwrap(), places.take("a").unwrap(), places.take("b").unwrap()];
        assert_eq!(places.take("a").unwrap_err().get(), 2);
        assert!(places.take("b").is_ok());
        drop(held);
        assert!(places.take("a").is_ok());
        assert!(places.lock().is_empty());
    }

    #[test]
    fn a_stream_that_is_refused_for_one_session_holds_no_place_of_another() {
        let admission = Admission::new(NonZeroUsize::new(1), None);
        let [a, b] = ["a", "b"].map(|name| SessionId::new(name).unwrap());
        let held = admission.admit([&b].into_iter(), None).unwrap();
        assert!(admission.admit([&a, &b].into_iter(), None).is_err());
        assert!(admission.admit([&a].into_iter(), None).is_ok());
        drop(held);
        assert!(admission.admit([&a, &b].into_iter(), None).is_ok());
    }

    #[test]
    fn without_limits_nothing_is_held() {
        let a = SessionId::new("a").unwrap();
        assert!(Admission::default().admit([&a].into_iter(), None).unwrap().is_none());
    }
}
