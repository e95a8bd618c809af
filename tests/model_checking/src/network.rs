//! The network: messages are sent, lost and delayed. Also replication and failover, and the canonical form of a state.

use crate::config::{Bug, Config};
use crate::parts::{Body, Life, Message, Phase, Stamp, Ticket};
use crate::state::State;

impl State {
    pub(crate) fn send(&mut self, ticket: Ticket, body: Body) {
        self.messages.push(Message {
            ticket,
            body,
            stamp: Stamp::default(),
            deaf: false,
            old: self.clients[usize::from(ticket.client)].at_old,
        });
    }

    /// Nobody waits for answers of this kind any more. Answers in flight are removed; requests stay, but get no reader.
    pub(crate) fn stop_listening(&mut self, ticket: Ticket, concerns: impl Fn(Body) -> bool) {
        self.messages.retain_mut(|message| {
            if message.ticket != ticket || !concerns(message.body) {
                return true;
            }
            message.deaf = true;
            message.stamp = Stamp::default();
            message.body.is_request()
        });
    }

    /// A request or its answer is in flight, and somebody waits for it.
    pub(crate) fn is_under_way(&self, ticket: Ticket, concerns: impl Fn(Body) -> bool) -> bool {
        let at_old = self.clients[usize::from(ticket.client)].at_old;
        self.messages.iter().any(|message| {
            // A request to a primary that the client no longer talks to brings no answer.
            message.ticket == ticket
                && !message.deaf
                && message.old == at_old
                && concerns(message.body)
        })
    }

    /// The replica catches up with the primary. The primary's answers that are still in flight count as acknowledged.
    pub(crate) fn copy(&mut self) {
        self.replica = Some(self.primary.clone());
        for message in self.messages.iter_mut().filter(|message| !message.old) {
            if let Body::Granted { acknowledged, .. } | Body::Kept { acknowledged } =
                &mut message.body
            {
                *acknowledged = true;
            }
        }
    }

    /// The replica takes over. The old primary is dead, or it is only cut off and continues to answer.
    pub(crate) fn fail_over(&mut self, cut_off: bool) {
        let Some(replica) = self.replica.take() else {
            return;
        };
        let former = std::mem::replace(&mut self.primary, replica);
        self.failed_over = true;
        if cut_off {
            self.old = Some(former);
            for message in &mut self.messages {
                message.old = true;
            }
            for client in &mut self.clients {
                client.at_old = true;
            }
        } else {
            self.messages.retain(|message| !message.body.is_request());
            for client in 0..self.clients.len() {
                self.reconnect(client);
            }
        }
    }

    /// The client connects to the new primary. It may have missed a wake meanwhile, so a subscriber gets one now.
    pub(crate) fn reconnect(&mut self, client: usize) {
        let it = &mut self.clients[client];
        it.at_old = false;
        it.wake |= it.subscribed;
        // The connection to the old primary is closed. Requests that still arrive there change nothing that a client
        // believes.
        self.messages
            .retain(|message| !message.old || usize::from(message.ticket.client) != client);
    }

    /// Removes requests of settled tickets that own nothing on any server and never will. Such requests have no effect
    /// as long as servers check the owner.
    fn forget_strays(&mut self, config: &Config) {
        if config.has(Bug::ReleasesAnyone) {
            return;
        }
        let stray: Vec<bool> = self
            .messages
            .iter()
            .map(|message| {
                let ticket = message.ticket;
                let servers = [
                    Some(&self.primary),
                    self.replica.as_ref(),
                    self.old.as_ref(),
                ];
                let mut records = servers
                    .into_iter()
                    .flatten()
                    .filter_map(|it| it.record.as_ref());
                let mut all = self.messages.iter();
                message.deaf
                    && message.body != Body::Attempt
                    && self.is_settled(ticket)
                    && !records.any(|record| record.owner == ticket)
                    && !all.any(|other| other.ticket == ticket && other.body == Body::Attempt)
            })
            .collect();
        let mut stray = stray.into_iter();
        self.messages.retain(|_| !stray.next().unwrap_or_default());
    }

    /// Removes whatever cannot matter any more. Otherwise it would distinguish states that behave the same.
    pub(crate) fn tidy(&mut self, config: &Config) {
        self.forget_strays(config);
        let clients = &self.clients;
        let reader = |ticket: Ticket| &clients[usize::from(ticket.client)];
        self.messages.retain(|message| {
            let client = reader(message.ticket);
            let dead = client.life == Life::Dead;
            message.body.is_request() || !dead && !message.deaf
        });
        if self.old.is_some()
            && clients.iter().all(|client| !client.at_old)
            && self.messages.iter().all(|message| !message.old)
        {
            self.old = None;
        }
        let late: Vec<Ticket> = self
            .messages
            .iter()
            .filter(|message| message.body == Body::Attempt)
            .map(|message| message.ticket)
            .collect();
        for server in [
            Some(&mut self.primary),
            self.replica.as_mut(),
            self.old.as_mut(),
        ]
        .into_iter()
        .flatten()
        {
            // Only attempts read tombstones.
            server.tombstones.retain(|ticket| late.contains(ticket));
        }
        for client in &mut self.clients {
            if matches!(client.phase, Phase::Idle | Phase::Holding) {
                client.subscribed = false;
                client.wake = false;
                client.woken = false;
                client.missed = false;
            }
        }
    }

    /// Returns the canonical form of the state under renaming of clients, and the new index of each client. We sort the
    /// clients by their name-independent key; only if two keys are equal do we try every order.
    pub(crate) fn canonical(mut self, config: &Config) -> (Self, Vec<u8>) {
        self.tidy(config);
        self.messages.sort_unstable();
        let same: Vec<u8> = (0u8..).take(self.clients.len()).collect();
        let mut ranks = same.clone();
        ranks.sort_by(|a, b| self.face(*a).cmp(&self.face(*b)));
        let mut pairs = ranks.windows(2);
        if pairs.all(|pair| self.face(pair[0]) != self.face(pair[1])) {
            let mut order = same.clone();
            for (new, old) in (0u8..).zip(&ranks) {
                order[usize::from(*old)] = new;
            }
            if order == same {
                return (self, same);
            }
            return (self.renamed(&order), order);
        }
        let plain = self.clone();
        let all = orders(self.clients.len()).iter();
        all.map(|order| (plain.renamed(order), order.to_vec()))
            .fold((self, same), Ord::min)
    }

    /// The sort key of a client: its state without any client's name.
    fn face(&self, client: u8) -> impl Ord + '_ {
        let it = &self.clients[usize::from(client)];
        let owns = self
            .primary
            .record
            .as_ref()
            .is_some_and(|record| record.owner.client == client);
        (
            owns,
            it.number,
            it.phase,
            it.life,
            it.unclear,
            &it.hold,
            it.chores.len(),
            it.subscribed,
            it.wake,
            it.woken,
            it.at_old,
        )
    }

    /// Renames the clients: `order[old]` is the new index.
    fn renamed(&self, order: &[u8]) -> Self {
        let mut state = self.clone();
        let rename = |ticket: &mut Ticket| ticket.client = order[usize::from(ticket.client)];
        for (old, client) in self.clients.iter().enumerate() {
            state.clients[usize::from(order[old])] = client.clone();
        }
        for client in &mut state.clients {
            for chore in &mut client.chores {
                rename(&mut chore.ticket);
            }
        }
        for message in &mut state.messages {
            rename(&mut message.ticket);
        }
        // The sort order depends on the clients' numbers, which have just changed.
        state.messages.sort_unstable();
        for server in [
            Some(&mut state.primary),
            state.replica.as_mut(),
            state.old.as_mut(),
        ]
        .into_iter()
        .flatten()
        {
            if let Some(record) = &mut server.record {
                rename(&mut record.owner);
            }
            server.tombstones.iter_mut().for_each(rename);
            server.tombstones.sort_unstable();
        }
        state
    }
}

fn orders(clients: usize) -> &'static [&'static [u8]] {
    match clients {
        2 => &[&[1, 0]],
        3 => &[&[0, 2, 1], &[1, 0, 2], &[1, 2, 0], &[2, 0, 1], &[2, 1, 0]],
        _ => &[],
    }
}
