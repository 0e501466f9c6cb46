//! The sockets that a stream can be written to.

use std::{future::Future, io};

use tokio::{
    io::{AsyncRead, AsyncWrite, Interest, Ready},
    net::{TcpStream, UnixStream},
};

/// A connected socket of either family. Its methods are tokio's own of that name.
pub(crate) trait Socket: AsyncRead + AsyncWrite + Unpin + Send + Sync + 'static {
    fn ready(&self, interest: Interest) -> impl Future<Output = io::Result<Ready>> + Send;
    fn try_read(&self, buffer: &mut [u8]) -> io::Result<usize>;
    fn try_write(&self, bytes: &[u8]) -> io::Result<usize>;
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
        }
    )*};
}
socket!(TcpStream UnixStream);
