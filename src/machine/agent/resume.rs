//! A conversation that outlives the links which carry it: after a cut it goes on where it was, each byte once.

use std::collections::VecDeque;
use std::io::{self, ErrorKind};
use std::time::Duration;

use tokio::io::{
    AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, DuplexStream, ReadHalf, WriteHalf,
};
use tokio::sync::mpsc::{self, UnboundedReceiver, UnboundedSender};
use tokio::time::Instant;

/// Bytes that are kept until the other side has them. What is said beyond them waits.
const UNCONFIRMED_BYTES_MAX: usize = 64 << 20;
/// Bytes after which their arrival is confirmed even if there is nothing else to say.
const CONFIRM_BYTES: u64 = 1 << 20;
const CHUNK_BYTES: usize = 64 << 10;
/// How long the other side may take to answer whether it is there.
const ANSWER_TIME_MAX: Duration = Duration::from_secs(15);
/// Kind (u8), bytes that the sender has received in all (u64), payload bytes (u32); little-endian.
const HEADER_BYTES: usize = 13;

/// What a parcel is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// The first of a link: what the sender has received until now.
    Hello,
    Data,
    /// Nothing more will be said. It counts as one byte.
    End,
    /// What the sender has received, and no more.
    Confirm,
    /// To be answered by `Confirm`.
    AreYouThere,
}

const KINDS: [Kind; 5] = [
    Kind::Hello,
    Kind::Data,
    Kind::End,
    Kind::Confirm,
    Kind::AreYouThere,
];

struct Parcel {
    kind: Kind,
    received: u64,
    payload: Vec<u8>,
}

impl Parcel {
    fn to_bytes(&self) -> Vec<u8> {
        let kind = KINDS.iter().position(|kind| *kind == self.kind);
        let mut bytes = vec![kind.unwrap_or_default() as u8];
        bytes.extend(self.received.to_le_bytes());
        bytes.extend((self.payload.len() as u32).to_le_bytes());
        bytes.extend(&self.payload);
        bytes
    }

    /// None at the end of the stream.
    async fn read(stream: &mut (impl AsyncRead + Unpin)) -> io::Result<Option<Parcel>> {
        let mut header = [0; HEADER_BYTES];
        if stream.read(&mut header[..1]).await? == 0 {
            return Ok(None);
        }
        stream.read_exact(&mut header[1..]).await?;
        let [kind, r0, r1, r2, r3, r4, r5, r6, r7, b0, b1, b2, b3] = header;
        let bytes = u32::from_le_bytes([b0, b1, b2, b3]) as usize;
        let kind = KINDS
            .get(usize::from(kind))
            .filter(|_| bytes <= CHUNK_BYTES);
        let Some(kind) = kind else {
            return Err(io::Error::new(
                ErrorKind::InvalidData,
                "what comes is no parcel",
            ));
        };
        let mut payload = vec![0; bytes];
        stream.read_exact(&mut payload).await?;
        Ok(Some(Parcel {
            kind: *kind,
            received: u64::from_le_bytes([r0, r1, r2, r3, r4, r5, r6, r7]),
            payload,
        }))
    }
}

/// One side's part of a conversation.
pub struct Conversation {
    /// What this side says.
    says: ReadHalf<DuplexStream>,
    /// What it is told; None when the other side has said all.
    hears: Option<UnboundedSender<Vec<u8>>>,
    /// Said, and not known to have arrived.
    unconfirmed: VecDeque<Vec<u8>>,
    unconfirmed_bytes: usize,
    /// Bytes that are known to have arrived.
    confirmed: u64,
    /// This side has said all.
    has_ended: bool,
    /// And the other side knows it.
    is_end_confirmed: bool,
    received: u64,
    /// What the other side was told of that.
    told_received: u64,
}

/// How a link ended.
#[derive(Debug, PartialEq, Eq)]
pub enum Carried {
    /// Both sides have said all, and have heard all.
    All,
    /// The conversation can go on over another link.
    Cut(String),
    /// The other side is not the one that this conversation was with.
    Stranger,
}

impl Conversation {
    /// The stream is what this side reads and writes.
    pub fn new() -> (Conversation, DuplexStream) {
        let (inner, outer) = tokio::io::duplex(CHUNK_BYTES);
        let (says, to_us) = tokio::io::split(inner);
        let (hears, heard) = mpsc::unbounded_channel();
        tokio::spawn(hand_over(heard, to_us));
        let conversation = Conversation {
            says,
            hears: Some(hears),
            unconfirmed: VecDeque::new(),
            unconfirmed_bytes: 0,
            confirmed: 0,
            has_ended: false,
            is_end_confirmed: false,
            received: 0,
            told_received: 0,
        };
        (conversation, outer)
    }

    /// Nothing more is heard: to this side it looks as if the other had said all.
    pub fn hang_up(&mut self) {
        self.hears = None;
    }

    /// Carries it over a link until that is cut, or all is said. Dropped, it is as if the link were cut. `silence` says how
    /// long nothing may be said before the other side is asked whether it is there; None: for ever.
    pub async fn carry(
        &mut self,
        input: impl AsyncRead + Unpin + Send + 'static,
        output: impl AsyncWrite + Unpin + Send + 'static,
        silence: impl Fn() -> Option<Duration>,
    ) -> Carried {
        let (parcels, mut arriving) = mpsc::channel(16);
        let (writes, to_write) = mpsc::unbounded_channel();
        // Reading and writing go on however busy the other one is; both end with this call.
        let reading = tokio::spawn(read_parcels(input, parcels));
        let writing = tokio::spawn(write_bytes(output, to_write));
        let _ends = EndWith([reading.abort_handle()]);
        let carried = self.converse(&mut arriving, &writes, silence).await;
        drop(writes);
        if carried == Carried::All {
            // The last word is sent before the link is closed.
            let _ = tokio::time::timeout(ANSWER_TIME_MAX, writing).await;
        } else {
            writing.abort();
        }
        carried
    }

    async fn converse(
        &mut self,
        arriving: &mut mpsc::Receiver<io::Result<Parcel>>,
        writes: &UnboundedSender<Vec<u8>>,
        silence: impl Fn() -> Option<Duration>,
    ) -> Carried {
        self.send(writes, Kind::Hello, Vec::new());
        let hello = tokio::time::timeout(ANSWER_TIME_MAX, arriving.recv()).await;
        match hello {
            Ok(Some(Ok(Parcel {
                kind: Kind::Hello,
                received,
                ..
            }))) => {
                let end = self.confirmed
                    + self.unconfirmed_bytes as u64
                    + u64::from(self.has_ended && !self.is_end_confirmed);
                if received < self.confirmed || received > end {
                    return Carried::Stranger;
                }
                self.confirm(received);
            }
            Ok(Some(Ok(_))) => return Carried::Cut("it does not begin with a greeting".to_owned()),
            Ok(Some(Err(error))) => return Carried::Cut(error.to_string()),
            Ok(None) => return Carried::Cut("it is closed".to_owned()),
            Err(_) => return Carried::Cut("it does not answer".to_owned()),
        }
        for chunk in self.unconfirmed.clone() {
            self.send(writes, Kind::Data, chunk);
        }
        if self.has_ended && !self.is_end_confirmed {
            self.send(writes, Kind::End, Vec::new());
        }
        let mut chunk = vec![0; CHUNK_BYTES];
        let mut spoken_last = Instant::now();
        let mut is_asked = false;
        loop {
            if self.has_ended && self.hears.is_none() && self.is_end_confirmed {
                return Carried::All;
            }
            let may_say = !self.has_ended && self.unconfirmed_bytes < UNCONFIRMED_BYTES_MAX;
            let patience = match is_asked {
                true => Some(ANSWER_TIME_MAX),
                false => silence(),
            };
            let silent = async {
                match patience {
                    Some(patience) => tokio::time::sleep_until(spoken_last + patience).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                biased;
                arrived = arriving.recv() => {
                    let parcel = match arrived {
                        Some(Ok(parcel)) => parcel,
                        other if self.has_ended && self.hears.is_none() => {
                            // Only whether the last word has arrived is not known.
                            drop(other);
                            return Carried::All;
                        }
                        Some(Err(error)) => return Carried::Cut(error.to_string()),
                        None => return Carried::Cut("it is closed".to_owned()),
                    };
                    (spoken_last, is_asked) = (Instant::now(), false);
                    self.hear(parcel, writes);
                }
                said = self.says.read(&mut chunk), if may_say => match said {
                    Ok(bytes @ 1..) => {
                        spoken_last = Instant::now();
                        let chunk = chunk[..bytes].to_vec();
                        self.unconfirmed_bytes += bytes;
                        self.unconfirmed.push_back(chunk.clone());
                        self.send(writes, Kind::Data, chunk);
                    }
                    Ok(0) | Err(_) => {
                        self.has_ended = true;
                        self.send(writes, Kind::End, Vec::new());
                    }
                },
                () = silent => match is_asked {
                    true => return Carried::Cut("the other side does not answer any more".to_owned()),
                    false => {
                        (spoken_last, is_asked) = (Instant::now(), true);
                        self.send(writes, Kind::AreYouThere, Vec::new());
                    }
                },
            }
        }
    }

    fn hear(&mut self, parcel: Parcel, writes: &UnboundedSender<Vec<u8>>) {
        self.confirm(parcel.received);
        match parcel.kind {
            Kind::Data => {
                self.received += parcel.payload.len() as u64;
                if let Some(hears) = &self.hears {
                    // Fails where this side does not listen any more.
                    let _ = hears.send(parcel.payload);
                }
                if self.received - self.told_received >= CONFIRM_BYTES {
                    self.send(writes, Kind::Confirm, Vec::new());
                }
            }
            Kind::End => {
                self.received += 1;
                self.hears = None;
                self.send(writes, Kind::Confirm, Vec::new());
            }
            Kind::AreYouThere => self.send(writes, Kind::Confirm, Vec::new()),
            Kind::Hello | Kind::Confirm => {}
        }
    }

    fn send(&mut self, writes: &UnboundedSender<Vec<u8>>, kind: Kind, payload: Vec<u8>) {
        self.told_received = self.received;
        let parcel = Parcel {
            kind,
            received: self.received,
            payload,
        };
        // Fails where the link is cut, which is told by its other half.
        let _ = writes.send(parcel.to_bytes());
    }

    /// Drops what has arrived.
    fn confirm(&mut self, received: u64) {
        let mut arrived = received.saturating_sub(self.confirmed);
        self.confirmed = self.confirmed.max(received);
        while let Some(first) = self.unconfirmed.front_mut() {
            let bytes = (first.len() as u64).min(arrived) as usize;
            if bytes == 0 {
                break;
            }
            arrived -= bytes as u64;
            self.unconfirmed_bytes -= bytes;
            match bytes == first.len() {
                true => drop(self.unconfirmed.pop_front()),
                false => drop(first.drain(..bytes)),
            }
        }
        self.is_end_confirmed |= arrived > 0 && self.has_ended;
    }
}

/// Tasks that end with their owner.
struct EndWith<const N: usize>([tokio::task::AbortHandle; N]);

impl<const N: usize> Drop for EndWith<N> {
    fn drop(&mut self) {
        self.0.iter().for_each(|task| task.abort());
    }
}

async fn hand_over(mut heard: UnboundedReceiver<Vec<u8>>, mut to_us: WriteHalf<DuplexStream>) {
    while let Some(bytes) = heard.recv().await {
        if to_us.write_all(&bytes).await.is_err() {
            return;
        }
    }
    // Fails where nobody listens.
    let _ = to_us.shutdown().await;
}

async fn read_parcels(
    mut input: impl AsyncRead + Unpin,
    parcels: mpsc::Sender<io::Result<Parcel>>,
) {
    loop {
        let (parcel, is_last) = match Parcel::read(&mut input).await {
            Ok(Some(parcel)) => (Ok(parcel), false),
            Ok(None) => return,
            Err(error) => (Err(error), true),
        };
        if parcels.send(parcel).await.is_err() || is_last {
            return;
        }
    }
}

async fn write_bytes(mut output: impl AsyncWrite + Unpin, mut writes: UnboundedReceiver<Vec<u8>>) {
    while let Some(bytes) = writes.recv().await {
        if output.write_all(&bytes).await.is_err() || output.flush().await.is_err() {
            return;
        }
    }
    let _ = output.shutdown().await;
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Both sides say these bytes over links that are cut after so many bytes each; the last one is whole.
    fn talk(said: [Vec<u8>; 2], cuts: &[usize]) -> [Vec<u8>; 2] {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .start_paused(true)
            .build()
            .unwrap();
        runtime.block_on(async {
            let mut sides = Vec::new();
            let mut heard = Vec::new();
            for said in said {
                let (conversation, stream) = Conversation::new();
                let (mut input, mut output) = tokio::io::split(stream);
                tokio::spawn(async move {
                    output.write_all(&said).await.unwrap();
                    output.shutdown().await.unwrap();
                });
                heard.push(tokio::spawn(async move {
                    let mut all = Vec::new();
                    input.read_to_end(&mut all).await.unwrap();
                    all
                }));
                sides.push(conversation);
            }
            let [one, other] = &mut sides[..] else {
                unreachable!()
            };
            let whole = [usize::MAX];
            for cut in cuts.iter().chain(&whole) {
                let (near, far) = tokio::io::duplex(1 << 16);
                let (near_input, near_output) = tokio::io::split(near);
                let (far_input, far_output) = tokio::io::split(far);
                let near_input = near_input.take(*cut as u64);
                let far_input = far_input.take((*cut / 2) as u64);
                let never = || None;
                let (here, there) = tokio::join!(
                    one.carry(near_input, near_output, never),
                    other.carry(far_input, far_output, never)
                );
                assert!(![&here, &there].contains(&&Carried::Stranger));
                if cut == &usize::MAX {
                    assert_eq!((here, there), (Carried::All, Carried::All));
                }
            }
            let mut all = Vec::new();
            for heard in heard {
                all.push(heard.await.unwrap());
            }
            let all: [Vec<u8>; 2] = all.try_into().unwrap();
            all
        })
    }

    fn bytes(count: usize) -> Vec<u8> {
        (0..count).map(|at| (at % 251) as u8).collect()
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn each_byte_arrives_once_however_links_are_cut(
            one in 0usize..200_000,
            other in 0usize..200_000,
            cuts in proptest::collection::vec(0usize..150_000, 0..8),
        ) {
            let said = [bytes(one), bytes(other)];
            let [heard_here, heard_there] = talk(said.clone(), &cuts);
            prop_assert!(heard_there == said[0], "{} of {one}", heard_there.len());
            prop_assert!(heard_here == said[1], "{} of {other}", heard_here.len());
        }
    }

    #[test]
    fn another_side_is_no_partner() {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        runtime.block_on(async {
            let (mut conversation, _stream) = Conversation::new();
            let (near, mut far) = tokio::io::duplex(1 << 16);
            let hello = Parcel {
                kind: Kind::Hello,
                received: 7,
                payload: Vec::new(),
            };
            far.write_all(&hello.to_bytes()).await.unwrap();
            let (input, output) = tokio::io::split(near);
            let carried = conversation.carry(input, output, || None).await;
            assert_eq!(carried, Carried::Stranger);
        });
    }

    #[test]
    fn a_side_that_does_not_answer_is_told() {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .start_paused(true)
            .build()
            .unwrap();
        runtime.block_on(async {
            let (mut conversation, _stream) = Conversation::new();
            let (near, mut far) = tokio::io::duplex(1 << 16);
            let hello = Parcel {
                kind: Kind::Hello,
                received: 0,
                payload: Vec::new(),
            };
            far.write_all(&hello.to_bytes()).await.unwrap();
            let (input, output) = tokio::io::split(near);
            let carry = conversation.carry(input, output, || Some(Duration::from_secs(1)));
            let expected = "the other side does not answer any more".to_owned();
            assert_eq!(carry.await, Carried::Cut(expected));
        });
    }
}
