//! Messages as bytes on a stream: postcard in frames, a long message between the frames of others.

use std::collections::{HashMap, VecDeque};
use std::io::{self, ErrorKind};

use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, BufReader};
use tokio::sync::mpsc::UnboundedReceiver;

use super::protocol::{CallId, FRAME_BYTES_MAX, MESSAGE_BYTES_MAX};

/// Payload bytes (u32), call (u64), whether more frames follow (u8); little-endian.
const HEADER_BYTES: usize = 13;
const READ_BYTES: usize = 64 << 10;

fn damaged(what: impl Into<String>) -> io::Error {
    io::Error::new(ErrorKind::InvalidData, what.into())
}

/// Gives each message to `on` until the stream ends or `on` returns false. Err for bytes that are no
/// messages, or an end in the middle of one.
pub async fn read_messages<T: DeserializeOwned>(
    stream: impl AsyncRead + Unpin,
    mut on: impl FnMut(CallId, T) -> bool,
) -> io::Result<()> {
    let mut stream = BufReader::with_capacity(READ_BYTES, stream);
    let mut begun: HashMap<CallId, VecDeque<Vec<u8>>> = HashMap::new();
    let mut begun_bytes = 0;
    loop {
        let mut header = [0; HEADER_BYTES];
        if stream.read(&mut header[..1]).await? == 0 {
            return match begun.is_empty() {
                true => Ok(()),
                false => Err(ErrorKind::UnexpectedEof.into()),
            };
        }
        stream.read_exact(&mut header[1..]).await?;
        let (bytes, id, more) = parse_header(&header)?;
        let mut payload = vec![0; bytes];
        stream.read_exact(&mut payload).await?;
        if more {
            begun_bytes += bytes;
            if begun_bytes > MESSAGE_BYTES_MAX {
                return Err(damaged(format!(
                    "a message above {MESSAGE_BYTES_MAX} bytes"
                )));
            }
            begun.entry(id).or_default().push_back(payload);
            continue;
        }
        let whole = match begun.remove(&id) {
            None => payload,
            Some(mut parts) => {
                begun_bytes -= parts.iter().map(Vec::len).sum::<usize>();
                parts.push_back(payload);
                Vec::from(parts).concat()
            }
        };
        let message = postcard::from_bytes(&whole);
        let message = message.map_err(|error| damaged(format!("no message: {error}")))?;
        if !on(id, message) {
            return Ok(());
        }
    }
}

fn parse_header(header: &[u8; HEADER_BYTES]) -> io::Result<(usize, CallId, bool)> {
    let [b0, b1, b2, b3, i0, i1, i2, i3, i4, i5, i6, i7, more] = *header;
    let bytes = u32::from_le_bytes([b0, b1, b2, b3]) as usize;
    let id = CallId::from_le_bytes([i0, i1, i2, i3, i4, i5, i6, i7]);
    if bytes > FRAME_BYTES_MAX || more > 1 {
        return Err(damaged(format!("no frame: {bytes} bytes, flag {more}")));
    }
    Ok((bytes, id, more == 1))
}

/// A message that is being sent.
struct Sending {
    id: CallId,
    bytes: Vec<u8>,
    sent: usize,
}

/// Writes what it is given until nobody can give more, then closes the stream.
pub async fn write_messages<T: Serialize>(
    mut stream: impl AsyncWrite + Unpin,
    mut messages: UnboundedReceiver<(CallId, T)>,
) -> io::Result<()> {
    let mut sending: VecDeque<Sending> = VecDeque::new();
    let mut frames = Vec::new();
    loop {
        // What has come meanwhile does not wait for the end of a long one.
        let next = match sending.is_empty() {
            true => match messages.recv().await {
                Some(next) => Some(next),
                None => return stream.shutdown().await,
            },
            false => messages.try_recv().ok(),
        };
        if let Some((id, message)) = next {
            let bytes = postcard::to_stdvec(&message);
            let bytes = bytes.map_err(|error| damaged(error.to_string()))?;
            if bytes.len() > MESSAGE_BYTES_MAX {
                return Err(damaged(format!(
                    "a message above {MESSAGE_BYTES_MAX} bytes"
                )));
            }
            sending.push_back(Sending { id, bytes, sent: 0 });
        }
        let Some(mut message) = sending.pop_front() else {
            continue;
        };
        let left = &message.bytes[message.sent..];
        let payload = &left[..left.len().min(FRAME_BYTES_MAX)];
        let more = payload.len() < left.len();
        frames.clear();
        frames.extend((payload.len() as u32).to_le_bytes());
        frames.extend(message.id.to_le_bytes());
        frames.push(u8::from(more));
        frames.extend(payload);
        stream.write_all(&frames).await?;
        if more {
            message.sent += FRAME_BYTES_MAX;
            sending.push_back(message);
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::sync::mpsc;

    use super::*;

    fn run<T>(test: impl Future<Output = T>) -> T {
        let runtime = tokio::runtime::Builder::new_current_thread().build();
        runtime.unwrap().block_on(test)
    }

    async fn bytes_of(messages: Vec<(CallId, Vec<u8>)>) -> Vec<u8> {
        let (send, receive) = mpsc::unbounded_channel();
        messages.into_iter().for_each(|it| send.send(it).unwrap());
        drop(send);
        let mut bytes = Vec::new();
        write_messages(&mut bytes, receive).await.unwrap();
        bytes
    }

    async fn read(bytes: &[u8]) -> (Vec<(CallId, Vec<u8>)>, Result<(), ErrorKind>) {
        let mut found = Vec::new();
        let read = read_messages(bytes, |id, message| {
            found.push((id, message));
            true
        });
        let end = read.await.map_err(|error| error.kind());
        (found, end)
    }

    #[test]
    fn short_messages_pass_a_long_one() {
        run(async {
            let long = vec![7; 3 * FRAME_BYTES_MAX];
            let messages = vec![(1, long.clone()), (2, vec![2]), (3, Vec::new())];
            let (found, end) = read(&bytes_of(messages).await).await;
            assert_eq!(end, Ok(()));
            assert_eq!(found, [(2, vec![2]), (3, Vec::new()), (1, long)]);
        });
    }

    #[test]
    fn damage_is_an_error() {
        run(async {
            let whole = bytes_of(vec![(1, vec![1, 2, 3]), (2, vec![4])]).await;
            let first = whole.len() - HEADER_BYTES - 2;
            for cut in 1..whole.len() {
                let (found, end) = read(&whole[..cut]).await;
                assert_eq!(found.len(), usize::from(cut >= first));
                let expected = match cut == first {
                    true => Ok(()),
                    false => Err(ErrorKind::UnexpectedEof),
                };
                assert_eq!(end, expected, "{cut}");
            }
            let mut long = whole.clone();
            long[..4].copy_from_slice(&(FRAME_BYTES_MAX as u32 + 1).to_le_bytes());
            assert_eq!(read(&long).await.1, Err(ErrorKind::InvalidData));
            let mut unending = whole.clone();
            unending[12] = 1;
            assert_eq!(
                read(&unending[..first]).await.1,
                Err(ErrorKind::UnexpectedEof)
            );
        });
    }
}
