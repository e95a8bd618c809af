//! Renewal of Redisson locks.

use std::borrow::Cow;

use futures_util::future::join_all;

use crate::error::Result;
use crate::store::redis::Redis;
use crate::store::redis::keys;
use crate::store::redis::layouts::renew::each_of;
use crate::store::redis::layouts::scripts;
use crate::store::{LockKind, Renewal, Renewed, Ticket};

/// The form of a hold in the store. One script renews all holds of a form.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum RenewalForm {
    Locks,
    Sides,
    Permits,
}

impl RenewalForm {
    const ALL: [Self; 3] = [Self::Locks, Self::Sides, Self::Permits];

    fn of(ticket: &Ticket) -> Self {
        match ticket.kind {
            kind if kind.is_read_write() => Self::Sides,
            LockKind::Permits(_) => Self::Permits,
            _ => Self::Locks,
        }
    }
}

impl Redis {
    /// Locks, sides of read-write locks and permits have a script each.
    pub(crate) async fn renew_redisson(&self, batch: &[Renewal]) -> Result<Vec<Renewed>> {
        let form_of = |renewal: &Renewal| RenewalForm::of(&renewal.ticket);
        let Some(first) = batch.first().map(form_of) else {
            return Ok(Vec::new());
        };
        if batch.iter().all(|renewal| form_of(renewal) == first) {
            return self.renew_form(first, batch).await;
        }
        let parts = RenewalForm::ALL.map(|form| {
            let own = batch.iter().filter(|renewal| form_of(renewal) == form);
            own.cloned().collect::<Vec<Renewal>>()
        });
        let each = RenewalForm::ALL.iter().zip(&parts);
        let each = each.map(|(form, part)| self.renew_form(*form, part));
        let mut results = join_all(each).await;
        let mut each = results.iter().zip(&parts);
        if each.all(|(result, part)| part.is_empty() || result.is_err()) {
            // No form was renewed: an outage, which is reported as one.
            let first = results.iter().position(Result::is_err);
            return first.map_or(Ok(Vec::new()), |at| results.swap_remove(at));
        }
        // Otherwise an error is that of its own form. The user may have lost the rights to the keys of one form, and the
        // others must not lose their locks with it.
        let each = results.into_iter().zip(&parts);
        let mut answers: Vec<_> = each
            .map(|(result, part)| each_of(result, part.len()).into_iter())
            .collect();
        let answer = |renewal: &Renewal| {
            let of_form = answers.get_mut(form_of(renewal) as usize);
            of_form.and_then(Iterator::next).unwrap_or(Renewed::Gone)
        };
        Ok(batch.iter().map(answer).collect())
    }

    async fn renew_form(&self, form: RenewalForm, batch: &[Renewal]) -> Result<Vec<Renewed>> {
        if batch.is_empty() {
            return Ok(Vec::new());
        }
        self.renew_or_split(batch, |part| self.renew_part(form, part))
            .await
    }

    async fn renew_part(&self, form: RenewalForm, part: &[Renewal]) -> Result<Vec<Renewed>> {
        let tickets = part.iter().map(|renewal| &renewal.ticket);
        let how = [self.how()];
        let (script, keys, args): (_, _, &[&str]) = match form {
            RenewalForm::Locks => (&scripts::RENEW, Vec::new(), &how[..]),
            RenewalForm::Sides => {
                let holds = tickets.map(keys::read_hold).map(Cow::into_owned);
                (&scripts::RENEW_SIDE, holds.collect(), &how[..])
            }
            RenewalForm::Permits => {
                let out = tickets.map(|ticket| keys::permits_out(&ticket.name));
                (&scripts::RENEW_PERMITS, out.collect(), &[][..])
            }
        };
        self.renew_batch(script, part, keys, args).await
    }
}
