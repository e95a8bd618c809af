//! The complete state of the model at one moment.

use crate::config::{Config, Faults};
use crate::parts::{Client, Life, Message, Pen, Phase, Server, Ticket};

/// The complete state.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct State {
    pub(crate) clients: Vec<Client>,
    pub(crate) messages: Vec<Message>,
    pub(crate) primary: Server,
    pub(crate) replica: Option<Server>,
    /// A former primary that is cut off and continues to answer.
    pub(crate) old: Option<Server>,
    pub(crate) failed_over: bool,
    pub(crate) faults: Faults,
    /// The number of grants so far.
    pub(crate) serial: u8,
    /// The newest write that the resource has accepted.
    pub(crate) resource: Pen,
    /// The resource accepted an older write after a newer one, or refused a newer one.
    pub(crate) backwards: bool,
}

impl State {
    pub(crate) fn new(config: &Config) -> Self {
        let client = Client {
            life: Life::Up,
            phase: Phase::Idle,
            number: 0,
            unclear: false,
            hold: None,
            chores: Vec::new(),
            subscribed: false,
            wake: false,
            woken: false,
            missed: false,
            at_old: false,
            pen: None,
        };
        Self {
            clients: vec![client; config.clients.into()],
            messages: Vec::new(),
            primary: Server::default(),
            replica: config.replica.then(Server::default),
            old: None,
            failed_over: false,
            faults: config.faults,
            serial: 0,
            resource: Pen::default(),
            backwards: false,
        }
    }

    /// The ticket that the client uses now.
    pub(crate) fn ticket(&self, client: usize) -> Ticket {
        #[allow(clippy::cast_possible_truncation, reason = "there are three at most")]
        let index = client as u8;
        Ticket {
            client: index,
            number: self.clients[client].number,
        }
    }
    /// Kills the client. Only the messages that it has sent remain.
    pub(crate) fn kill(&mut self, client: usize) {
        let client = &mut self.clients[client];
        client.life = Life::Dead;
        client.phase = Phase::Idle;
        client.unclear = false;
        client.hold = None;
        client.chores.clear();
        client.at_old = false;
    }

    /// Writes to the resource, which refuses a token smaller than the newest it has seen.
    pub(crate) fn write(&mut self, client: usize) -> Option<()> {
        let pen = self.clients[client].pen?;
        let newest = self.resource;
        let taken = pen.token >= newest.token;
        self.backwards |= taken != (pen.serial >= newest.serial);
        if taken {
            self.resource = pen;
        }
        Some(())
    }

    /// Whether a hold or a message of the client proves a lease, or may come to prove one.
    pub(crate) fn counts(&self, client: u8) -> bool {
        let hold = self.clients[usize::from(client)].hold.as_ref();
        hold.is_some_and(|hold| !hold.told && hold.proof.proves())
            || self.messages.iter().any(|message| {
                message.ticket.client == client
                    && message.body.counts()
                    && !message.deaf
                    && message.stamp.proves()
            })
    }
}
