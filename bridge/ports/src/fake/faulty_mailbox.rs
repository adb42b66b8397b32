//! A mailbox whose network fails as the test says.

use super::injector::{Injection, Injector, injections};
use crate::{Mail, Mailbox, MailboxName, Moved};
use async_trait::async_trait;
use causeway_core::identity::{LogName, Slot};
use causeway_core::outcome::{Fault, Outcome};
use causeway_core::rows::Row;

/// A kind of call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum MailboxCall {
    /// [`Mailbox::post`].
    Post,
    /// [`Mailbox::read_mail`].
    ReadMail,
    /// [`Mailbox::move_mail`].
    MoveMail,
}

/// A mailbox between which and its caller things go wrong. Without an injection it is the mailbox inside.
#[derive(Debug)]
pub struct FaultyMailbox<M> {
    inner: M,
    injector: Injector<MailboxCall, Late>,
}

/// A write that is still under way.
#[derive(Clone, Debug)]
enum Late {
    Post(MailboxName, Mail),
    Move(LogName, Slot, Row, MailboxName, Vec<String>),
}

injections!(FaultyMailbox, Mailbox, MailboxCall);

impl<M: Mailbox> FaultyMailbox<M> {
    /// Lets the writes that are still under way take effect, in the order in which they were made; answers how many there were.
    pub async fn apply_late(&self) -> usize {
        let late = self.injector.take_late();
        for write in &late {
            // Nobody waits for the answers.
            match write {
                Late::Post(mailbox, mail) => drop(self.inner.post(mailbox, mail).await),
                Late::Move(log, slot, segment, mailbox, mail) => drop(self.inner.move_mail(log, *slot, segment, mailbox, mail).await),
            }
        }
        late.len()
    }
}

#[async_trait]
impl<M: Mailbox> Mailbox for FaultyMailbox<M> {
    async fn post(&self, mailbox: &MailboxName, mail: &Mail) -> Outcome<bool> {
        self.injector.write(MailboxCall::Post, || Late::Post(mailbox.clone(), mail.clone()), self.inner.post(mailbox, mail)).await
    }

    async fn read_mail(&self, mailbox: &MailboxName, limit: usize) -> Result<Vec<Mail>, Fault> {
        self.injector.read(MailboxCall::ReadMail, self.inner.read_mail(mailbox, limit)).await
    }

    async fn move_mail(&self, log: &LogName, slot: Slot, segment: &Row, mailbox: &MailboxName, mail: &[String]) -> Outcome<Moved> {
        let late = || Late::Move(log.clone(), slot, segment.clone(), mailbox.clone(), mail.to_vec());
        self.injector.write(MailboxCall::MoveMail, late, self.inner.move_mail(log, slot, segment, mailbox, mail)).await
    }
}
