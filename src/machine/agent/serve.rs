//! The serving side of an agent: requests in, the machine's host asked, replies out.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeSet, HashMap};
use std::io::{self, IsTerminal};
use std::os::fd::{AsFd, OwnedFd};
use std::rc::Rc;

use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};
use tokio::net::unix::pipe;
use tokio::sync::mpsc::{self, UnboundedReceiver};
use tokio::sync::{Notify, watch};
use tokio::task::{LocalSet, spawn_local};

use super::frames::{read_messages, write_messages};
use super::protocol::{
    CallId, FromAgent, GREETING, LockId, PROTOCOL_VERSION, Reply, Request, ToAgent,
};
use crate::machine::host::{Cancel, Host, HostError, HostErrorKind, Lock, Output, ServiceId};
use crate::machine::measure;
use crate::machine::setups;
use crate::machine::tune::{self, Status};

/// What an agent has in hand.
struct Agent {
    host: Rc<dyn Host>,
    locks: RefCell<HashMap<LockId, Lock>>,
    locks_taken: Cell<u64>,
    /// Services that were started and not stopped.
    services: RefCell<BTreeSet<ServiceId>>,
    calls: RefCell<HashMap<CallId, OpenCall>>,
    call_ended: Notify,
}

/// A call that is being carried out.
struct OpenCall {
    cancel: watch::Sender<bool>,
    is_abandoned: bool,
}

/// Carries out requests until nobody can send any more. Then it ends what runs, and gives back what it holds.
/// `send` gets the replies; it is called on this thread.
pub async fn serve(
    host: Rc<dyn Host>,
    mut requests: UnboundedReceiver<(CallId, ToAgent)>,
    send: impl Fn(CallId, FromAgent) + 'static,
) {
    let agent = Rc::new(Agent {
        host,
        locks: RefCell::default(),
        locks_taken: Cell::new(0),
        services: RefCell::default(),
        calls: RefCell::default(),
        call_ended: Notify::new(),
    });
    let send = Rc::new(send);
    let serving = async {
        while let Some((id, message)) = requests.recv().await {
            match message {
                ToAgent::Request(request) => {
                    let (cancel, cancelled) = watch::channel(false);
                    let call = OpenCall {
                        cancel,
                        is_abandoned: false,
                    };
                    agent.calls.borrow_mut().insert(id, call);
                    let (agent, send) = (agent.clone(), send.clone());
                    spawn_local(async move {
                        let tell = |text: &str| send(id, FromAgent::Waiting(text.to_owned()));
                        let cancel = Cancel::new(cancelled);
                        let reply = agent.answer(request, &tell, cancel).await;
                        let is_abandoned = (agent.calls.borrow())
                            .get(&id)
                            .is_none_or(|call| call.is_abandoned);
                        match is_abandoned {
                            true => agent.put_away(reply).await,
                            false => send(id, FromAgent::Reply(reply)),
                        }
                        agent.calls.borrow_mut().remove(&id);
                        agent.call_ended.notify_one();
                    });
                }
                ToAgent::Cancel => agent.cancel(id, false),
                ToAgent::Abandon => agent.cancel(id, true),
            }
        }
        let open: Vec<CallId> = agent.calls.borrow().keys().copied().collect();
        open.into_iter().for_each(|id| agent.cancel(id, true));
        while !agent.calls.borrow().is_empty() {
            agent.call_ended.notified().await;
        }
    };
    LocalSet::new().run_until(serving).await;
    let locks: Vec<Lock> = agent.locks.take().into_values().collect();
    if !locks.is_empty() {
        agent.put_back().await;
    }
    for lock in locks {
        lock.release().await;
    }
}

impl Agent {
    fn cancel(&self, id: CallId, is_abandoned: bool) {
        if let Some(call) = self.calls.borrow_mut().get_mut(&id) {
            call.is_abandoned |= is_abandoned;
            // Fails where the request cannot be cancelled.
            let _ = call.cancel.send(true);
        }
    }

    async fn answer(&self, request: Request, tell: &dyn Fn(&str), cancel: Cancel) -> Reply {
        let host = &self.host;
        match request {
            Request::Facts => Reply::Facts(host.facts().await),
            Request::Files(ops) => Reply::Files(host.files(ops).await),
            Request::Run(command) => Reply::Run(host.run(command, cancel).await),
            Request::Measure(measurement) => {
                let measured = measure::carry_out(host.as_ref(), *measurement, cancel).await;
                Reply::Measure(measured.map(Box::new))
            }
            Request::Start(command) => {
                let started = host.start(command).await;
                self.services.borrow_mut().extend(started.iter());
                Reply::Start(started)
            }
            Request::Probe(service, command) => {
                Reply::Probe(host.probe(service, command, cancel).await)
            }
            Request::Ended(service) => Reply::Ended(host.ended(service).await),
            Request::Stop(service) => Reply::Stop(self.stop(service).await),
            Request::Lock(holder) => {
                let lock = host.lock(holder, tell, cancel).await;
                Reply::Lock(lock.map(|lock| {
                    let id = LockId(self.locks_taken.get());
                    self.locks_taken.set(id.0 + 1);
                    self.locks.borrow_mut().insert(id, lock);
                    id
                }))
            }
            Request::Unlock(id) => {
                let lock = self.locks.borrow_mut().remove(&id);
                if let Some(lock) = lock {
                    lock.release().await;
                }
                Reply::Unlock
            }
            Request::Clean => Reply::Clean(host.clean().await),
            Request::Undo(op) => Reply::Undo(host.undo(op).await),
        }
    }

    async fn stop(&self, service: ServiceId) -> Result<Output, HostError> {
        let stopped = self.host.stop(service).await;
        self.services.borrow_mut().remove(&service);
        stopped
    }

    /// Who asked is gone in the middle of a session: what it has started is ended, and what it has set up or tuned is put
    /// back from the machine's journals. What cannot be is told by whoever comes next.
    async fn put_back(&self) {
        for service in self.services.take() {
            let _ = self.host.stop(service).await;
        }
        let host = self.host.as_ref();
        let _ = setups::undo_all(host).await;
        let Ok(facts) = host.facts().await else {
            return;
        };
        let journal = &facts.journal.own;
        if let Ok(Status::Active { by_hand: false, .. }) = tune::status(host, journal).await {
            let _ = tune::revert(host, journal).await;
        }
    }

    /// Gives back what nobody waits for any more.
    async fn put_away(&self, reply: Reply) {
        match reply {
            Reply::Start(Ok(service)) => {
                // What it printed is of no use to anybody.
                let _ = self.stop(service).await;
            }
            Reply::Lock(Ok(id)) => drop(self.locks.borrow_mut().remove(&id)),
            _ => {}
        }
    }
}

/// This process's standard input and output, without blocking. Fails where they are no pipes.
pub fn standard_streams() -> Result<(pipe::Receiver, pipe::Sender), HostError> {
    let (stdin, stdout) = (io::stdin(), io::stdout());
    if stdin.is_terminal() || stdout.is_terminal() {
        return Err(HostError::new(
            HostErrorKind::Other,
            "`matrix agent` is started by another `matrix`, which speaks to it over pipes; it is nothing to type to",
        ));
    }
    // Away from the terminal of whoever started us: Ctrl-C there is told to us, if at all. Fails for the leader of a group.
    let _ = rustix::process::setsid();
    let owned = |stream: &dyn AsFd| -> io::Result<OwnedFd> {
        let fd = stream.as_fd().try_clone_to_owned()?;
        fcntl_setfl(&fd, fcntl_getfl(&fd)? | OFlags::NONBLOCK)?;
        Ok(fd)
    };
    // Sockets too: what is asked of them is only to be read and written.
    let input = owned(&stdin).and_then(pipe::Receiver::from_owned_fd_unchecked);
    let output = owned(&stdout).and_then(pipe::Sender::from_owned_fd_unchecked);
    Ok((input.map_err(broken)?, output.map_err(broken)?))
}

fn broken(error: io::Error) -> HostError {
    HostError::io("cannot serve over standard input and output", &error)
}

/// Says that an agent is here, before anything else is said.
pub async fn greet(output: &mut pipe::Sender) -> Result<(), HostError> {
    let greeting = format!("{GREETING} {PROTOCOL_VERSION}\n");
    output.write_all(greeting.as_bytes()).await.map_err(broken)
}

/// Serves a host over standard input and output until the input ends. Fails where they are no pipes.
pub async fn on_standard_streams(host: Rc<dyn Host>) -> Result<(), HostError> {
    let (input, mut output) = standard_streams()?;
    greet(&mut output).await?;
    on_stream(host, input, output).await.map_err(broken)
}

/// Serves a host until the input ends.
pub async fn on_stream(
    host: Rc<dyn Host>,
    input: impl AsyncRead + Unpin,
    output: impl AsyncWrite + Unpin,
) -> io::Result<()> {
    let (requested, requests) = mpsc::unbounded_channel();
    let (reply, replies) = mpsc::unbounded_channel();
    let reading = async move {
        read_messages(input, |id, message| requested.send((id, message)).is_ok()).await
    };
    let serving = serve(host, requests, move |id, message| {
        // Fails when the other side does not read any more: then the input ends too.
        let _ = reply.send((id, message));
    });
    let writing = write_messages(output, replies);
    let (read, (), written) = tokio::join!(reading, serving, writing);
    // An end in the middle of a message is no error here: who asks went away.
    read.or(written)
}
