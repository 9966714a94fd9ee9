//! The asking side of an agent: a host whose methods are messages.

use std::cell::Cell;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use tokio::sync::mpsc::{self, UnboundedSender};
use tokio::sync::oneshot;

use super::protocol::{CallId, FromAgent, LockId, Reply, Request, ToAgent};
use crate::machine::host::measurement::{Measurement, MeasurementResult};
use crate::machine::host::undo::{UndoOp, UndoReply};
use crate::machine::host::{
    Cancel, Command, FileOp, FileReply, HeldLock, Holder, Host, HostError, HostErrorKind,
    HostFacts, Lock, Output, Probed, ServiceId, Wait,
};

/// A host that an agent serves.
pub struct AgentHost {
    name: String,
    /// None while it is being dropped.
    link: Option<Link>,
    /// The agent's, where it is one of ours.
    thread: Option<JoinHandle<()>>,
}

/// The way to an agent.
#[derive(Clone)]
struct Link {
    to_agent: UnboundedSender<(CallId, ToAgent)>,
    calls: Arc<Calls>,
}

/// The calls that wait for an answer.
#[derive(Default)]
pub struct Calls(Mutex<OpenCalls>);

#[derive(Default)]
struct OpenCalls {
    last: CallId,
    waiting: HashMap<CallId, Waiting>,
    /// Why there is no agent any more.
    gone: Option<HostError>,
}

struct Waiting {
    patience: Duration,
    reply: oneshot::Sender<Result<Reply, HostError>>,
    told: Option<UnboundedSender<String>>,
}

impl Calls {
    /// Hands what an agent has sent to who waits for it. What nobody waits for is dropped.
    pub fn on(&self, id: CallId, message: FromAgent) {
        let mut calls = self.locked();
        match message {
            FromAgent::Waiting(holder) => {
                if let Some(told) = calls.waiting.get(&id).and_then(|it| it.told.as_ref()) {
                    // Fails only when nobody waits any more.
                    let _ = told.send(holder);
                }
            }
            FromAgent::Reply(reply) => {
                if let Some(waiting) = calls.waiting.remove(&id) {
                    let _ = waiting.reply.send(Ok(reply));
                }
            }
        }
    }

    /// How long nothing may come until it is to be asked whether the agent is there; None where nobody waits.
    pub fn patience(&self) -> Option<Duration> {
        let calls = self.locked();
        calls.waiting.values().map(|it| it.patience).max()
    }

    /// There is no agent any more: all calls fail, now and later. The first reason counts.
    fn close(&self, error: HostError) {
        let mut calls = self.locked();
        for (_, waiting) in calls.waiting.drain() {
            let _ = waiting.reply.send(Err(error.clone()));
        }
        calls.gone.get_or_insert(error);
    }

    fn locked(&self) -> MutexGuard<'_, OpenCalls> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Closes the calls of a machine when it is dropped: kept by what carries the messages.
pub struct Gone {
    machine: String,
    calls: Arc<Calls>,
}

impl Gone {
    pub fn new(machine: &str, calls: &Arc<Calls>) -> Gone {
        Gone {
            machine: machine.to_owned(),
            calls: calls.clone(),
        }
    }

    /// Closes them with the reason, empty where it is not known.
    pub fn tell(&self, reason: &str) {
        let reason = match reason {
            "" => "it went without saying why",
            reason => reason,
        };
        let message = format!("the agent of machine `{}` is gone: {reason}", self.machine);
        self.because(message);
    }

    /// Closes them with the whole message.
    pub fn because(&self, message: String) {
        self.calls
            .close(HostError::new(HostErrorKind::Lost, message));
    }
}

impl Drop for Gone {
    fn drop(&mut self) {
        self.tell("");
    }
}

impl AgentHost {
    /// `to_agent` is read, and `calls` is told, by what carries the messages. It ends when
    /// `to_agent` is closed; a `thread` is waited for.
    pub fn new(
        name: &str,
        to_agent: UnboundedSender<(CallId, ToAgent)>,
        calls: Arc<Calls>,
        thread: Option<JoinHandle<()>>,
    ) -> AgentHost {
        AgentHost {
            name: name.to_owned(),
            link: Some(Link { to_agent, calls }),
            thread,
        }
    }

    async fn ask(&self, request: Request) -> Result<Reply, HostError> {
        self.ask_and_listen(request, Cancel::never(), None).await
    }

    async fn ask_and_listen(
        &self,
        request: Request,
        cancel: Cancel,
        told: Option<&dyn Fn(&str)>,
    ) -> Result<Reply, HostError> {
        match &self.link {
            Some(link) => link.ask(request, cancel, told).await,
            None => Err(mixed_up()),
        }
    }
}

impl Drop for AgentHost {
    fn drop(&mut self) {
        self.link = None;
        if let Some(thread) = self.thread.take() {
            // Fails if it panicked, which was told where it happened.
            let _ = thread.join();
        }
    }
}

impl Link {
    async fn ask(
        &self,
        request: Request,
        mut cancel: Cancel,
        on_told: Option<&dyn Fn(&str)>,
    ) -> Result<Reply, HostError> {
        let (reply, mut replied) = oneshot::channel();
        let (told, mut telling) = match on_told {
            Some(_) => {
                let (told, telling) = mpsc::unbounded_channel();
                (Some(told), Some(telling))
            }
            None => (None, None),
        };
        let id = {
            let mut calls = self.calls.locked();
            if let Some(gone) = &calls.gone {
                return Err(gone.clone());
            }
            calls.last += 1;
            let id = calls.last;
            let patience = request.patience();
            let waiting = Waiting {
                patience,
                reply,
                told,
            };
            calls.waiting.insert(id, waiting);
            id
        };
        let open = OpenCall {
            link: self,
            id,
            is_answered: Cell::new(false),
        };
        self.send(id, ToAgent::Request(request));
        let mut is_cancelled = false;
        loop {
            let next = async {
                match &mut telling {
                    Some(telling) => telling.recv().await,
                    None => None,
                }
            };
            tokio::select! {
                biased;
                Some(text) = next => {
                    if let Some(on_told) = on_told {
                        on_told(&text);
                    }
                }
                reply = &mut replied => {
                    open.is_answered.set(true);
                    return reply.unwrap_or_else(|_| Err(mixed_up()));
                }
                () = cancel.cancelled(), if !is_cancelled => {
                    is_cancelled = true;
                    self.send(id, ToAgent::Cancel);
                }
            }
        }
    }

    /// Where nobody reads it any more, the call was or will be told that the agent is gone.
    fn send(&self, id: CallId, message: ToAgent) {
        let _ = self.to_agent.send((id, message));
    }
}

/// A call that is given up where its future is dropped before it is answered.
struct OpenCall<'a> {
    link: &'a Link,
    id: CallId,
    is_answered: Cell<bool>,
}

impl Drop for OpenCall<'_> {
    fn drop(&mut self) {
        if !self.is_answered.get() {
            self.link.calls.locked().waiting.remove(&self.id);
            self.link.send(self.id, ToAgent::Abandon);
        }
    }
}

/// A lock that an agent holds for us.
struct AgentLock {
    link: Link,
    id: LockId,
    is_released: bool,
}

impl HeldLock for AgentLock {
    fn release(mut self: Box<Self>) -> Wait<'static, ()> {
        self.is_released = true;
        Box::pin(async move {
            // An agent that is gone has no lock.
            let _ = self
                .link
                .ask(Request::Unlock(self.id), Cancel::never(), None)
                .await;
        })
    }
}

impl Drop for AgentLock {
    fn drop(&mut self) {
        if !self.is_released {
            // Number 0 is no call: nobody waits for the answer.
            self.link
                .send(0, ToAgent::Request(Request::Unlock(self.id)));
        }
    }
}

fn mixed_up() -> HostError {
    let message =
        "an agent answered something else than it was asked; this is an error in `matrix`";
    HostError::new(HostErrorKind::Other, message)
}

/// What a reply holds, where it answers the question.
macro_rules! expect {
    ($reply:expr, $kind:path) => {
        match $reply {
            Ok($kind(answer)) => answer,
            Ok(_) => Err(mixed_up()),
            Err(error) => Err(error),
        }
    };
}

impl Host for AgentHost {
    fn name(&self) -> &str {
        &self.name
    }

    fn facts(&self) -> Wait<'_, Result<HostFacts, HostError>> {
        Box::pin(async move { expect!(self.ask(Request::Facts).await, Reply::Facts) })
    }

    fn files(&self, ops: Vec<FileOp>) -> Wait<'_, Vec<Result<FileReply, HostError>>> {
        Box::pin(async move {
            let count = ops.len();
            let failed = |error: HostError| vec![Err(error); count];
            match self.ask(Request::Files(ops)).await {
                Ok(Reply::Files(replies)) if replies.len() == count => replies,
                Ok(_) => failed(mixed_up()),
                Err(error) => failed(error),
            }
        })
    }

    fn run(&self, command: Command, cancel: Cancel) -> Wait<'_, Result<Output, HostError>> {
        Box::pin(async move {
            if cancel.is_cancelled() {
                return Ok(Output::interrupted());
            }
            let request = Request::Run(command);
            expect!(self.ask_and_listen(request, cancel, None).await, Reply::Run)
        })
    }

    fn measure<'a>(
        &'a self,
        measurement: &Measurement,
        cancel: &Cancel,
    ) -> Option<Wait<'a, Result<MeasurementResult, HostError>>> {
        let request = Request::Measure(Box::new(measurement.clone()));
        let cancel = cancel.clone();
        Some(Box::pin(async move {
            let reply = self.ask_and_listen(request, cancel, None).await;
            expect!(reply, Reply::Measure).map(|result| *result)
        }))
    }

    fn start(&self, command: Command) -> Wait<'_, Result<ServiceId, HostError>> {
        Box::pin(async move { expect!(self.ask(Request::Start(command)).await, Reply::Start) })
    }

    fn probe(
        &self,
        service: ServiceId,
        command: Command,
        cancel: Cancel,
    ) -> Wait<'_, Result<Probed, HostError>> {
        Box::pin(async move {
            let request = Request::Probe(service, command);
            expect!(
                self.ask_and_listen(request, cancel, None).await,
                Reply::Probe
            )
        })
    }

    fn ended(&self, service: ServiceId) -> Wait<'_, Option<Output>> {
        Box::pin(async move {
            match self.ask(Request::Ended(service)).await {
                Ok(Reply::Ended(output)) => output,
                // Who asks for it next is told.
                _ => None,
            }
        })
    }

    fn stop(&self, service: ServiceId) -> Wait<'_, Result<Output, HostError>> {
        Box::pin(async move { expect!(self.ask(Request::Stop(service)).await, Reply::Stop) })
    }

    fn lock<'a>(
        &'a self,
        holder: Holder,
        on_wait: &'a dyn Fn(&str),
        cancel: Cancel,
    ) -> Wait<'a, Result<Lock, HostError>> {
        Box::pin(async move {
            let request = Request::Lock(holder);
            let reply = self.ask_and_listen(request, cancel, Some(on_wait)).await;
            let id = expect!(reply, Reply::Lock)?;
            let link = self.link.clone().ok_or_else(mixed_up)?;
            Ok(Lock(Box::new(AgentLock {
                link,
                id,
                is_released: false,
            })))
        })
    }

    fn clean(&self) -> Wait<'_, Result<Vec<String>, HostError>> {
        Box::pin(async move { expect!(self.ask(Request::Clean).await, Reply::Clean) })
    }

    fn undo(&self, op: UndoOp) -> Wait<'_, Result<UndoReply, HostError>> {
        Box::pin(async move { expect!(self.ask(Request::Undo(op)).await, Reply::Undo) })
    }
}
