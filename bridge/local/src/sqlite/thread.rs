//! The thread on which a store's calls run.

use super::error::{fault, left_nothing};
use causeway_core::outcome::{Fault, FaultCode, Outcome};
use rusqlite::Connection;
use std::io;
use std::thread::JoinHandle;
use tokio::sync::{mpsc, oneshot};

/// How many calls wait for the thread before callers wait for room.
pub const QUEUE_CALLS: usize = 64;

type Call = Box<dyn FnOnce(&mut Connection) + Send>;

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
    pub(super) fn start(mut connection: Connection) -> io::Result<Self> {
        let (calls, mut queue) = mpsc::channel::<Call>(QUEUE_CALLS);
        let thread = std::thread::Builder::new().name("sqlite-store".to_owned()).spawn(move || {
            while let Some(call) = queue.blocking_recv() {
                call(&mut connection);
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
        match self.run(call).await {
            Ok(result) => result.map_err(|error| fault(&error)),
            Err(_) => Err(gone()),
        }
    }

    /// Runs a call that writes.
    pub(super) async fn write<T: Send + 'static>(
        &self,
        call: impl FnOnce(&mut Connection) -> rusqlite::Result<T> + Send + 'static,
    ) -> Outcome<T> {
        match self.run(call).await {
            Ok(Ok(value)) => Outcome::Done(value),
            Ok(Err(error)) if left_nothing(&error) => Outcome::NotDone(fault(&error)),
            Ok(Err(error)) => Outcome::Unknown(fault(&error)),
            Err(Ended::Before) => Outcome::NotDone(gone()),
            Err(Ended::During) => Outcome::Unknown(gone()),
        }
    }

    async fn run<T: Send + 'static>(&self, call: impl FnOnce(&mut Connection) -> T + Send + 'static) -> Result<T, Ended> {
        let calls = self.calls.as_ref().ok_or(Ended::Before)?;
        let (answer, answered) = oneshot::channel();
        let call: Call = Box::new(move |connection| {
            // Nobody waits any more where the caller was dropped; the call has run all the same.
            let _ = answer.send(call(connection));
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
