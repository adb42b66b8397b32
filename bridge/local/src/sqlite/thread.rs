//! The thread on which a store's calls run.

use super::error::{fault, lacks_space, left_nothing};
use super::reserve::{Purpose, Reserve};
use causeway_core::outcome::{Fault, FaultCode, Outcome};
use rusqlite::Connection;
use std::io;
use std::thread::JoinHandle;
use tokio::sync::{mpsc, oneshot};

/// How many calls wait for the thread before callers wait for room.
pub const QUEUE_CALLS: usize = 64;

type Call = Box<dyn FnOnce(&mut Held) + Send>;

/// What the thread owns.
struct Held {
    connection: Connection,
    /// Only where the store was opened to write.
    reserve: Option<Reserve>,
}

impl Held {
    fn write<T>(&mut self, purpose: Purpose, mut call: impl FnMut(&mut Connection) -> rusqlite::Result<T>) -> Outcome<T> {
        let Self { connection, reserve } = self;
        let Some(reserve) = reserve else { return outcome(call(connection)) };
        if let Err(fault) = reserve.admit(connection, purpose) {
            return Outcome::NotDone(fault);
        }
        let mut result = call(connection);
        if result.as_ref().is_err_and(lacks_space) && reserve.ran_out(connection, purpose) {
            result = call(connection);
        }
        if result.is_ok() {
            reserve.wrote(connection, purpose);
        }
        outcome(result)
    }
}

fn outcome<T>(result: rusqlite::Result<T>) -> Outcome<T> {
    match result {
        Ok(value) => Outcome::Done(value),
        Err(error) if left_nothing(&error) => Outcome::NotDone(fault(&error)),
        Err(error) => Outcome::Unknown(fault(&error)),
    }
}

/// Owns the thread; the thread owns the connection. Dropping it lets the queue run empty and waits for the thread's end.
#[derive(Debug)]
pub(super) struct StoreThread {
    calls: Option<mpsc::Sender<Call>>,
    thread: Option<JoinHandle<()>>,
}

/// Why there is no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ended {
    /// The call never reached the thread.
    Before,
    /// The thread ended during the call.
    During,
}

impl StoreThread {
    /// Starts the thread.
    ///
    /// # Errors
    /// Where the system has no thread to give.
    pub(super) fn start(connection: Connection, reserve: Option<Reserve>) -> io::Result<Self> {
        let (calls, mut queue) = mpsc::channel::<Call>(QUEUE_CALLS);
        let mut held = Held { connection, reserve };
        let thread = std::thread::Builder::new().name("sqlite-store".to_owned()).spawn(move || {
            while let Some(call) = queue.blocking_recv() {
                call(&mut held);
            }
        })?;
        Ok(Self { calls: Some(calls), thread: Some(thread) })
    }

    /// Runs a call that only reads.
    ///
    /// # Errors
    /// What SQLite said.
    pub(super) async fn read<T: Send + 'static>(
        &self,
        call: impl FnOnce(&mut Connection) -> rusqlite::Result<T> + Send + 'static,
    ) -> Result<T, Fault> {
        match self.run(|held| call(&mut held.connection)).await {
            Ok(result) => result.map_err(|error| fault(&error)),
            Err(_) => Err(gone()),
        }
    }

    /// Runs a call that writes; a second time where the disk was full and the reserve may help.
    pub(super) async fn write<T: Send + 'static>(
        &self,
        purpose: Purpose,
        call: impl FnMut(&mut Connection) -> rusqlite::Result<T> + Send + 'static,
    ) -> Outcome<T> {
        match self.run(move |held| held.write(purpose, call)).await {
            Ok(outcome) => outcome,
            Err(Ended::Before) => Outcome::NotDone(gone()),
            Err(Ended::During) => Outcome::Unknown(gone()),
        }
    }

    async fn run<T: Send + 'static>(&self, call: impl FnOnce(&mut Held) -> T + Send + 'static) -> Result<T, Ended> {
        let calls = self.calls.as_ref().ok_or(Ended::Before)?;
        let (answer, answered) = oneshot::channel();
        let call: Call = Box::new(move |held| {
            // Nobody waits any more where the caller was dropped; the call has run all the same.
            let _ = answer.send(call(held));
        });
        calls.send(call).await.map_err(|_| Ended::Before)?;
        answered.await.map_err(|_| Ended::During)
    }
}

fn gone() -> Fault {
    Fault::new(FaultCode::Unavailable, "the thread of the SQLite store ended; restart the worker")
}

impl Drop for StoreThread {
    fn drop(&mut self) {
        self.calls = None;
        if let Some(thread) = self.thread.take() {
            // A panic there has been reported by the panic hook already.
            let _ = thread.join();
        }
    }
}
