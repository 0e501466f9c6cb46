//! The sockets that a stream can be written to, and what hyper has of them until then.

mod local;

use std::{
    future::Future,
    io,
    os::fd::OwnedFd,
    task::{Context, Waker},
};

use hyper::rt::{Read, Write};
use hyper_util::rt::TokioIo;
use tokio::{
    io::{AsyncRead, AsyncWrite, Interest, Ready, unix::AsyncFd},
    net::{TcpStream, UnixStream},
};

use self::local::LocalSocket;

/// A connected socket of either family. Its methods are tokio's own of that name, but for the last four.
pub(crate) trait Socket: AsyncRead + AsyncWrite + Sized + Unpin + Send + Sync + 'static {
    /// The same socket, as hyper uses it.
    type Lent: Read + Write + Unpin + Send;
    fn ready(&self, interest: Interest) -> impl Future<Output = io::Result<Ready>> + Send;
    fn try_read(&self, buffer: &mut [u8]) -> io::Result<usize>;
    fn try_write(&self, bytes: &[u8]) -> io::Result<usize>;
    /// Takes it away from the runtime. It stays as it is: whoever has it next is not to wait in it either.
    fn into_fd(self) -> io::Result<OwnedFd>;
    /// Lets go of the task that waited for input last. A socket holds it until another one waits in the
    /// same way, and with it all the room that the task took.
    fn forget_waiter(&self);
    /// For hyper to use.
    fn lend(self) -> io::Result<Self::Lent>;
    /// After hyper used it.
    fn take_back(lent: Self::Lent) -> io::Result<Self>;
}

/// A descriptor that the runtime waits in, for that and nothing else. Must be called within a tokio runtime.
#[expect(
    deprecated,
    reason = "what takes its place is unsafe: a descriptor might change below it, which an owned one cannot"
)]
pub(super) fn watched(descriptor: OwnedFd, interest: Interest) -> io::Result<AsyncFd<OwnedFd>> {
    AsyncFd::with_interest(descriptor, interest)
}

macro_rules! socket {
    ($family:ident, $lent:ty, $lend:expr, $take_back:expr) => {
        impl Socket for $family {
            type Lent = $lent;
            fn ready(&self, interest: Interest) -> impl Future<Output = io::Result<Ready>> + Send {
                $family::ready(self, interest)
            }
            fn try_read(&self, buffer: &mut [u8]) -> io::Result<usize> {
                $family::try_read(self, buffer)
            }
            fn try_write(&self, bytes: &[u8]) -> io::Result<usize> {
                $family::try_write(self, bytes)
            }
            fn into_fd(self) -> io::Result<OwnedFd> {
                Ok(self.into_std()?.into())
            }
            fn forget_waiter(&self) {
                // Nobody is woken by it; whether there is input does not matter here.
                let _ = self.poll_read_ready(&mut Context::from_waker(Waker::noop()));
            }
            fn lend(self) -> io::Result<$lent> {
                $lend(self)
            }
            fn take_back(lent: $lent) -> io::Result<Self> {
                $take_back(lent)
            }
        }
    };
}
socket!(TcpStream, TokioIo<TcpStream>, |socket| Ok(TokioIo::new(socket)), |lent: TokioIo<_>| Ok(lent.into_inner()));
socket!(UnixStream, LocalSocket, |socket: UnixStream| LocalSocket::new(socket.into_fd()?), |lent: LocalSocket| {
    UnixStream::from_std(lent.into_fd().into())
});
