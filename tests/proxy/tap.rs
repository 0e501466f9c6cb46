//! A wire between a proxy and the gateway that counts the gateway's answers.

use std::{
    io::{Read, Write},
    net::{Shutdown, SocketAddr, TcpListener, TcpStream},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
};

/// An address that leads to the gateway. Its threads end with their connections, the first with
/// the test's process.
pub(crate) struct Tap {
    pub(crate) address: SocketAddr,
    answers: Arc<AtomicUsize>,
}

impl Tap {
    pub(crate) fn before(gateway: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let answers = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&answers);
        thread::spawn(move || {
            for proxy in listener.incoming().map(Result::unwrap) {
                let gateway = TcpStream::connect(gateway).unwrap();
                let (to_gateway, to_proxy) = (gateway.try_clone().unwrap(), proxy.try_clone().unwrap());
                thread::spawn(move || carry(proxy, to_gateway, |_| {}));
                let count = Arc::clone(&count);
                let mut seen = Vec::new();
                thread::spawn(move || {
                    carry(gateway, to_proxy, |bytes| {
                        // No answer has this in its body.
                        seen.extend_from_slice(bytes);
                        let found = seen.windows(7).filter(|window| window == b"HTTP/1.").count();
                        count.fetch_add(found, Ordering::SeqCst);
                        // What may be the beginning of another.
                        seen.drain(..seen.len().saturating_sub(6));
                    });
                });
            }
        });
        Self { address, answers }
    }

    pub(crate) fn answers(&self) -> usize {
        self.answers.load(Ordering::SeqCst)
    }
}

fn carry(mut from: TcpStream, mut to: TcpStream, mut see: impl FnMut(&[u8])) {
    let mut buffer = [0; 4096];
    while let Ok(read @ 1..) = from.read(&mut buffer) {
        see(&buffer[..read]);
        if to.write_all(&buffer[..read]).is_err() {
            break;
        }
    }
    let _ = to.shutdown(Shutdown::Write);
    let _ = from.shutdown(Shutdown::Read);
}
