//! The same without the library: a number there and back over streams of tokio.

use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

use crate::{Local, Rounds};

/// Bytes that a duplex holds.
const HOLDS: usize = 64;

struct Echo<S>(S);

pub(crate) fn duplex() -> Local<'static, Box<dyn Rounds>> {
    Box::pin(async {
        let (near, far) = tokio::io::duplex(HOLDS);
        tokio::spawn(echo(far));
        Ok(Box::new(Echo(near)) as Box<dyn Rounds>)
    })
}

pub(crate) fn tcp() -> Local<'static, Box<dyn Rounds>> {
    Box::pin(async {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let near = TcpStream::connect(listener.local_addr()?).await?;
        let (far, _) = listener.accept().await?;
        near.set_nodelay(true)?;
        far.set_nodelay(true)?;
        tokio::spawn(echo(far));
        Ok(Box::new(Echo(near)) as Box<dyn Rounds>)
    })
}

async fn echo(mut stream: impl AsyncRead + AsyncWrite + Unpin) {
    // The program ends with its process.
    while let Ok(number) = stream.read_u64().await {
        if stream.write_u64(number + 1).await.is_err() {
            return;
        }
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> Rounds for Echo<S> {
    fn run(&mut self, count: u64) -> Local<'_, ()> {
        Box::pin(async move {
            for number in 0..count {
                self.0.write_u64(number).await?;
                if self.0.read_u64().await? != number + 1 {
                    return Err("the answer is wrong".into());
                }
            }
            Ok(())
        })
    }
}
