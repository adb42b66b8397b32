//! MQTT 3.1.1 under a client of MQTT 5: a stream that translates every packet on its way.
//!
//! What MQTT 3.1.1 has no words for is left out (properties, options of subscriptions) or said in the only way that it knows; what it does not say comes
//! to the client as what it means. Which promises that costs is told by the rules of the configuration.

mod translate;

pub(crate) use translate::Malformed;

use crate::dial::Stream;
use core::pin::Pin;
use core::task::{Context, Poll, ready};
use std::collections::VecDeque;
use std::io;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use translate::{Translator, frame};

/// How much is read from below at a time.
const READ_BYTES: usize = 8_192;

/// A connection to a broker of MQTT 3.1.1 that looks like one to a broker of MQTT 5.
pub(crate) struct Downgraded {
    below: Box<dyn Stream>,
    translator: Translator,
    max_packet_bytes: usize,
    /// What came from below and is no whole packet yet.
    arrived: Vec<u8>,
    /// What the client has not read yet.
    readable: VecDeque<u8>,
    /// What the client wrote and is no whole packet yet.
    written: Vec<u8>,
    /// What has not been written below yet.
    outbound: VecDeque<u8>,
    /// What made no sense, once the client has read what came before it.
    malformed: Option<Malformed>,
}

impl Downgraded {
    /// `clean_session`: the session begins and ends with the connection. Packets of more than `max_packet_bytes` are refused before they are read.
    pub(crate) fn new(below: Box<dyn Stream>, clean_session: bool, max_packet_bytes: u32) -> Self {
        Self {
            below,
            translator: Translator::new(clean_session),
            max_packet_bytes: usize::try_from(max_packet_bytes).unwrap_or(usize::MAX),
            arrived: Vec::new(),
            readable: VecDeque::new(),
            written: Vec::new(),
            outbound: VecDeque::new(),
            malformed: None,
        }
    }

    /// Translates every whole packet that arrived.
    fn translate_arrived(&mut self) -> Result<(), Malformed> {
        let mut rest = self.arrived.as_slice();
        while let Some(packet) = frame(rest)? {
            if packet.total > self.max_packet_bytes {
                return Err(Malformed::TooLarge { bytes: packet.total, max: self.max_packet_bytes });
            }
            let Some(body) = rest.get(packet.header..packet.total) else { break };
            self.translator.incoming(packet.first, body, &mut self.readable)?;
            rest = rest.get(packet.total..).unwrap_or_default();
        }
        let done = self.arrived.len() - rest.len();
        self.arrived.drain(..done);
        Ok(())
    }

    fn translate_written(&mut self) -> Result<(), Malformed> {
        let mut rest = self.written.as_slice();
        while let Some(packet) = frame(rest)? {
            let Some(body) = rest.get(packet.header..packet.total) else { break };
            self.translator.outgoing(packet.first, body, &mut self.outbound)?;
            rest = rest.get(packet.total..).unwrap_or_default();
        }
        let done = self.written.len() - rest.len();
        self.written.drain(..done);
        Ok(())
    }

    /// Writes below until nothing waits.
    fn poll_outbound(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while !self.outbound.is_empty() {
            let (front, _) = self.outbound.as_slices();
            let count = ready!(Pin::new(&mut self.below).poll_write(cx, front))?;
            if count == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            self.outbound.drain(..count);
        }
        Poll::Ready(Ok(()))
    }
}

impl AsyncRead for Downgraded {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = &mut *self;
        while this.readable.is_empty() {
            if let Some(reason) = this.malformed {
                return Poll::Ready(Err(reason.into()));
            }
            let mut chunk = [0; READ_BYTES];
            let mut chunk = ReadBuf::new(&mut chunk);
            ready!(Pin::new(&mut this.below).poll_read(cx, &mut chunk))?;
            if chunk.filled().is_empty() {
                return Poll::Ready(Ok(()));
            }
            this.arrived.extend_from_slice(chunk.filled());
            this.malformed = this.translate_arrived().err();
        }
        let (front, _) = this.readable.as_slices();
        let count = front.len().min(buf.remaining());
        buf.put_slice(front.get(..count).unwrap_or_default());
        this.readable.drain(..count);
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Downgraded {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        // What was taken before has to leave first, so that no more than one write of the client waits here.
        ready!(self.poll_outbound(cx))?;
        self.written.extend_from_slice(buf);
        self.translate_written()?;
        match self.poll_outbound(cx) {
            Poll::Ready(Err(error)) => Poll::Ready(Err(error)),
            Poll::Ready(Ok(())) | Poll::Pending => Poll::Ready(Ok(buf.len())),
        }
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.poll_outbound(cx))?;
        Pin::new(&mut self.below).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.poll_outbound(cx))?;
        Pin::new(&mut self.below).poll_shutdown(cx)
    }
}
