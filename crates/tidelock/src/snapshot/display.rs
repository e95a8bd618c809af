//! A lock, its holders and findings as one line each, for logs and terminals.

use std::fmt;

use super::{ClientInfo, Finding, Holder, Mode, Snapshot};
use crate::types::Escaped;

/// One line that is safe for a terminal: `stock:42: held by shop (pid 7 on web-1), 28.4s left, token 3, 2 waiting`.
impl fmt::Display for Snapshot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: ", Escaped(&self.name))?;
        match &*self.holders {
            [] if self.latch.is_some() && self.permits.is_none() => f.write_str("not open")?,
            [] => f.write_str("free")?,
            [first, others @ ..] => {
                write!(f, "held by {first}")?;
                for other in others {
                    write!(f, " and {other}")?;
                }
                match self.expires_in {
                    Some(left) => write!(f, ", {:.1}s left", left.as_secs_f64())?,
                    None => f.write_str(", no expiry")?,
                }
            }
        }
        if let Some(count) = self.permits {
            write!(
                f,
                ", {} of {} permits available",
                count.available, count.total
            )?;
        }
        if let Some(count) = self.latch {
            let or = if self.permits.is_some() { "or " } else { "" };
            write!(f, ", {or}a latch with the count {count}")?;
        }
        if let Some(token) = self.token {
            write!(f, ", token {token}")?;
        }
        match self.waiters {
            Some(waiters) => write!(f, ", {waiters} waiting"),
            None => Ok(()),
        }
    }
}

/// The program of the holder, or its owner id if it has published no details. One line, safe for a terminal.
impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.client {
            Some(client) => client.fmt(f)?,
            None => write!(f, "{}", Escaped(&self.owner))?,
        }
        match self.mode {
            Mode::Exclusive => Ok(()),
            Mode::Read => f.write_str(" to read"),
            Mode::Write => f.write_str(" to write"),
            Mode::UpgradeableRead => f.write_str(" to read, upgradeable"),
            Mode::Permits => write!(f, " with {} permits", self.holds),
        }
    }
}

/// One line that is safe for a terminal: `shop as deploy (pid 7 on web-1)`.
impl fmt::Display for ClientInfo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", Escaped(&self.program))?;
        if let Some(user) = &self.user {
            write!(f, " as {}", Escaped(user))?;
        }
        write!(f, " (pid {} on {})", self.pid, Escaped(&self.host))
    }
}

/// One line that is safe for a terminal: subject, observation, meaning, remedy.
impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (subject, found) = (Escaped(&self.subject), Escaped(&self.found));
        write!(f, "{subject}: {found}: {}", Escaped(&self.meaning))?;
        match &self.advice {
            Some(advice) => write!(f, "; {}", Escaped(advice)),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, UNIX_EPOCH};

    use super::*;
    use crate::snapshot::PermitCount;
    use crate::{FencingToken, Severity};

    const EVIL: &str = "evil\nx: free\u{1b}[31m";
    const SHOWN: &str = r"evil\nx: free\u{1b}[31m";

    #[test]
    fn a_lock_is_one_line_that_forges_nothing() {
        let mut seen = Snapshot::free(EVIL);
        assert_eq!(seen.to_string(), format!("{SHOWN}: free"));
        let mut holder = Holder::new(EVIL, 1);
        seen.holders.push(holder.clone());
        holder.mode = Mode::Read;
        holder.client = Some(ClientInfo::new(EVIL, 7, EVIL, UNIX_EPOCH).run_by(Some(EVIL)));
        seen.holders.push(holder);
        seen.expires_in = Some(Duration::from_millis(28_400));
        seen.waiters = Some(2);
        assert_eq!(
            seen.to_string(),
            format!(
                "{SHOWN}: held by {SHOWN} and {SHOWN} as {SHOWN} (pid 7 on {SHOWN}) to read, 28.4s left, 2 waiting"
            )
        );
    }

    #[test]
    fn a_count_is_shown_as_the_kind_that_it_may_be() {
        let mut seen = Snapshot::free("seats");
        seen.latch = Some(3);
        let shown = "seats: not open, a latch with the count 3";
        assert_eq!(seen.to_string(), shown);
        // The store cannot tell one from the other.
        seen.permits = Some(PermitCount::new(3, 5));
        let shown = "seats: free, 3 of 5 permits available, or a latch with the count 3";
        assert_eq!(seen.to_string(), shown);
        seen.latch = None;
        assert_eq!(seen.to_string(), "seats: free, 3 of 5 permits available");
    }

    #[test]
    fn a_holder_is_shown_with_its_mode() {
        for (mode, shown) in [
            (Mode::Exclusive, "a:1"),
            (Mode::Read, "a:1 to read"),
            (Mode::Write, "a:1 to write"),
            (Mode::UpgradeableRead, "a:1 to read, upgradeable"),
            (Mode::Permits, "a:1 with 2 permits"),
        ] {
            let mut holder = Holder::new("a:1", 2);
            holder.mode = mode;
            assert_eq!(holder.to_string(), shown);
        }
        let mut seen = Snapshot::free("stock");
        seen.holders.push(Holder::new("a:1", 1));
        seen.token = Some(FencingToken::new(7));
        assert_eq!(seen.to_string(), "stock: held by a:1, no expiry, token 7");
    }

    #[test]
    fn a_finding_is_one_line_that_forges_nothing() {
        let finding = Finding::new(Severity::Danger, EVIL, EVIL, EVIL).advise(EVIL);
        let shown = format!("{SHOWN}: {SHOWN}: {SHOWN}; {SHOWN}");
        assert_eq!(finding.to_string(), shown);
        let good = Finding::new(Severity::Good, "clock", "right", "leases end in time");
        assert_eq!(good.to_string(), "clock: right: leases end in time");
    }
}
