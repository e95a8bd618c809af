//! The client: the acquire loop, the steward's renewals and deadlines, and the background commands.

use crate::config::{Bug, Config};
use crate::parts::{
    Body, CHORES, Chore, Hold, LEASE, Message, NEVER, Pen, Phase, RENEW, Stamp, Ticket,
};
use crate::state::State;

fn asks(body: Body) -> bool {
    matches!(
        body,
        Body::Attempt | Body::Granted { .. } | Body::Held { .. } | Body::Withdrawn
    )
}

fn undoes(body: Body) -> bool {
    matches!(body, Body::Undo | Body::Undone)
}

fn renews(body: Body) -> bool {
    matches!(body, Body::Renew | Body::Kept { .. } | Body::Gone)
}

fn ends(body: Body) -> bool {
    matches!(body, Body::Release { .. } | Body::Ended)
}

impl State {
    /// Sends an attempt, for a new ticket or once more for the same one.
    pub(crate) fn ask(&mut self, c: usize) -> Option<()> {
        let client = &mut self.clients[c];
        if !matches!(client.phase, Phase::Idle | Phase::Paused) {
            return None;
        }
        self.question(c);
        Some(())
    }

    fn question(&mut self, c: usize) {
        let client = &mut self.clients[c];
        client.phase = Phase::Asking { gone: false };
        client.woken = false;
        client.missed = false;
        self.send(self.ticket(c), Body::Attempt);
    }

    /// Subscribes after the first refusal, then tries again. Without the second attempt, the client would miss a
    /// release that came before the subscription.
    pub(crate) fn subscribe(&mut self, config: &Config, c: usize) -> Option<()> {
        let Phase::Refused { recheck } = self.clients[c].phase else {
            return None;
        };
        self.clients[c].subscribed = true;
        if config.has(Bug::SubscribesAfterTry) {
            self.clients[c].phase = Phase::Sleeping { recheck };
        } else {
            self.question(c);
        }
        Some(())
    }

    /// Wakes up and tries again: a wake has arrived, or the holder's lease should have ended.
    pub(crate) fn rise(&mut self, c: usize) -> Option<()> {
        let client = &self.clients[c];
        let Phase::Sleeping { recheck } = client.phase else {
            return None;
        };
        if !client.woken && recheck > 0 {
            return None;
        }
        self.question(c);
        Some(())
    }

    /// The response timeout expires. If a request or its answer is still in flight, this uses up one `late` fault.
    pub(crate) fn give_up(&mut self, config: &Config, c: usize) -> Option<()> {
        let ticket = self.ticket(c);
        let (gone, undo) = match self.clients[c].phase {
            Phase::Asking { gone } => (gone, false),
            Phase::Undoing { gone } => (gone, true),
            _ => return None,
        };
        if self.is_under_way(ticket, |body| asks(body) || undoes(body)) {
            self.faults.late = self.faults.late.checked_sub(1)?;
        }
        self.stop_listening(ticket, |body| asks(body) || undoes(body));
        self.clients[c].unclear = true;
        // The undo may still arrive. Under the same ticket it would release the next grant, so the client takes a new
        // ticket.
        let anew = undo && !config.has(Bug::KeepsTicketAfterUndo);
        if gone || anew {
            return self.settle(c, true);
        }
        self.clients[c].phase = Phase::Paused;
        Some(())
    }

    /// Ends the acquisition; the caller continues with the next one. With `chore`, the store may still keep something
    /// for the ticket, so a background command releases it.
    fn settle(&mut self, c: usize, chore: bool) -> Option<()> {
        let ticket = self.ticket(c);
        let client = &mut self.clients[c];
        let tombstone = client.unclear;
        client.hold = None;
        client.unclear = false;
        client.number += 1;
        client.phase = Phase::Idle;
        if chore {
            if client.chores.len() == CHORES {
                return None;
            }
            client.chores.push(Chore { ticket, tombstone });
            client.chores.sort_unstable();
        }
        self.stop_listening(ticket, renews);
        if chore {
            self.send(ticket, Body::Release { tombstone });
        }
        Some(())
    }

    /// The holder releases the lock, or lets go of it after it was told of the loss.
    pub(crate) fn release(&mut self, c: usize) -> Option<()> {
        self.clients[c].hold.as_ref()?;
        self.settle(c, true)
    }

    /// The caller's wait limit expires, or the caller is dropped.
    pub(crate) fn leave(&mut self, c: usize) -> Option<()> {
        self.faults.leaves = self.faults.leaves.checked_sub(1)?;
        let client = &mut self.clients[c];
        match &mut client.phase {
            Phase::Asking { gone } | Phase::Undoing { gone } if !*gone => *gone = true,
            Phase::Refused { .. } | Phase::Sleeping { .. } | Phase::Paused => {
                let unclear = client.unclear;
                return self.settle(c, unclear);
            }
            _ => return None,
        }
        Some(())
    }

    /// Sends a background command again.
    pub(crate) fn repeat(&mut self, c: usize, chore: usize) -> Option<()> {
        let Chore { ticket, tombstone } = self.clients[c].chores.get(chore)?.clone();
        if self.is_under_way(ticket, ends) {
            self.faults.late = self.faults.late.checked_sub(1)?;
            self.stop_listening(ticket, ends);
        }
        self.send(ticket, Body::Release { tombstone });
        Some(())
    }

    /// The steward sends a renewal that is due. A renewal without an answer is sent again; at most two are in flight.
    pub(crate) fn renew(&mut self, c: usize) -> Option<()> {
        let hold = self.clients[c].hold.as_ref()?;
        let ticket = self.ticket(c);
        let sent: Vec<u8> = self
            .messages
            .iter()
            .filter(|message| message.ticket == ticket && renews(message.body))
            .map(|message| message.stamp.age)
            .collect();
        if hold.told
            || !hold.proof.proves()
            || hold.proof.age < RENEW
            || sent.len() > 1
            || sent.iter().any(|age| *age < RENEW)
        {
            return None;
        }
        self.send(ticket, Body::Renew);
        Some(())
    }

    /// The deadline of a hold passes, and the holder is told.
    pub(crate) fn tell(&mut self, c: usize) -> Option<()> {
        let client = &mut self.clients[c];
        if !client.is_overdue() {
            return None;
        }
        client.hold.as_mut()?.told = true;
        Some(())
    }

    /// An answer arrives.
    pub(crate) fn take(&mut self, config: &Config, answer: &Message) -> Option<()> {
        let c = usize::from(answer.ticket.client);
        let current = self.ticket(c) == answer.ticket;
        match answer.body {
            Body::Granted {
                token,
                serial,
                acknowledged,
            } => {
                let pen = Pen { token, serial };
                self.granted(config, c, answer.stamp, pen, acknowledged)?;
            }
            Body::Held { left } => self.refused(config, c, left)?,
            // The ticket was withdrawn, so this acquisition is over.
            Body::Withdrawn => self.settle(c, false)?,
            Body::Undone => match self.clients[c].phase {
                Phase::Undoing { gone: true } => {
                    let unclear = self.clients[c].unclear;
                    self.settle(c, unclear)?;
                }
                _ => self.clients[c].phase = Phase::Paused,
            },
            Body::Kept { acknowledged } if current => {
                let believed = acknowledged || config.has(Bug::BelievesIsolated);
                self.kept(config, c, answer.stamp, believed);
            }
            Body::Gone if current => {
                if let Some(hold) = &mut self.clients[c].hold {
                    hold.told = true;
                }
            }
            Body::Ended => {
                self.stop_listening(answer.ticket, ends);
                let chores = &mut self.clients[c].chores;
                chores.retain(|chore| chore.ticket != answer.ticket);
            }
            _ => {}
        }
        Some(())
    }

    fn granted(
        &mut self,
        config: &Config,
        c: usize,
        sent: Stamp,
        pen: Pen,
        acknowledged: bool,
    ) -> Option<()> {
        let Phase::Asking { gone } = self.clients[c].phase else {
            return Some(());
        };
        // A failover would forget a grant that the replica does not have. So the client gives it back.
        if !acknowledged && !config.has(Bug::BelievesUnacknowledgedGrant) {
            self.clients[c].phase = Phase::Undoing { gone };
            self.send(self.ticket(c), Body::Undo);
            return Some(());
        }
        let proof = counted_from(config, sent);
        if gone || !proof.proves() {
            return self.settle(c, true);
        }
        let client = &mut self.clients[c];
        client.phase = Phase::Holding;
        client.hold = Some(Hold { proof, told: false });
        if config.writes {
            client.pen = Some(pen);
        }
        Some(())
    }

    fn refused(&mut self, config: &Config, c: usize, left: u8) -> Option<()> {
        let client = &mut self.clients[c];
        let recheck = if config.has(Bug::NeverPolls) {
            NEVER
        } else {
            left.clamp(1, LEASE)
        };
        match client.phase {
            Phase::Asking { gone: true } => {
                let unclear = client.unclear;
                return self.settle(c, unclear);
            }
            _ if client.subscribed => client.phase = Phase::Sleeping { recheck },
            _ => client.phase = Phase::Refused { recheck },
        }
        Some(())
    }

    fn kept(&mut self, config: &Config, c: usize, sent: Stamp, believed: bool) {
        let proof = counted_from(config, sent);
        if let Some(hold) = &mut self.clients[c].hold
            && believed
            && !hold.told
            && proof.age < hold.proof.age
        {
            hold.proof = proof;
        }
    }

    /// The client is done with the ticket, and no background command for it is left.
    pub(crate) fn is_settled(&self, ticket: Ticket) -> bool {
        let client = &self.clients[usize::from(ticket.client)];
        ticket.number < client.number && client.chores.iter().all(|chore| chore.ticket != ticket)
    }
}

fn counted_from(config: &Config, sent: Stamp) -> Stamp {
    if config.has(Bug::CountsFromReply) {
        Stamp {
            excused: sent.excused,
            ..Stamp::default()
        }
    } else {
        sent
    }
}
