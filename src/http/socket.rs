//! The sockets that a stream can be written to.

use std::{
    future::Future,
    io,
    os::fd::OwnedFd,
    task::{Context, Waker},
};

use tokio::{
    io::{AsyncRead, AsyncWrite, Interest, Ready},
    net::{TcpStream, UnixStream},
};

/// A connected socket of either family. Its methods are tokio's own of that name, but for the last two.
pub(crate) trait Socket: AsyncRead + AsyncWrite + Unpin + Send + Sync + 'static {
    fn ready(&self, interest: Interest) -> impl Future<Output = io::Result<Ready>> + Send;
    fn try_read(&self, buffer: &mut [u8]) -> io::Result<usize>;
    fn try_write(&self, bytes: &[u8]) -> io::Result<usize>;
    /// Takes it away from the runtime. It stays as it is: whoever has it next is not to wait in it either.
    fn into_fd(self) -> io::Result<OwnedFd>;
    /// Lets go of the task that waited for input last. A socket holds it until another one waits in the
    /// same way, and with it all the room that the task took.
    fn forget_waiter(&self);
}

macro_rules! socket {
    ($($family:ident)*) => {$(
        impl Socket for $family {
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
        }
    )*};
}
socket!(TcpStream UnixStream);
