//! Replaces values that differ on each run with placeholders.

use std::collections::HashMap;

use super::Call;

const LATCH: &str = "redisson_unlock_latch:";

/// The channel of one waiter of a fair lock: the channel of the lock, and the owner.
const CHANNEL: &str = "redisson_lock__channel:";

/// Replaces owners, times, and the request ids and times of unlock latches.
#[derive(Debug, Clone, Default)]
pub struct Mask(HashMap<String, String>);

impl Mask {
    /// Shows `owner` as `shown`. We replace only whole words, so `uuid:1` leaves `uuid:10` alone.
    pub fn owner(&mut self, owner: impl Into<String>, shown: impl Into<String>) {
        self.0.insert(owner.into(), shown.into());
    }

    /// Masks one key, field, value or argument.
    #[must_use]
    pub fn word(&self, word: String) -> String {
        if let Some(shown) = self.0.get(&word) {
            return shown.clone();
        }
        // The field of a write hold, and the key of a read hold, which ends with a number.
        for (owner, shown) in &self.0 {
            if word.strip_suffix(":write") == Some(owner) {
                return format!("{shown}:write");
            }
            let [held, masked] = [owner, shown].map(|owner| format!(":{owner}:rwlock_timeout"));
            if word.contains(&held) {
                return word.replace(&held, &masked);
            }
            let told = word.strip_suffix(owner.as_str());
            if let Some(channel) = told.filter(|channel| channel.starts_with(CHANNEL)) {
                return format!("{channel}{shown}");
            }
        }
        if is_time(&word) {
            return "<ms since 1970>".to_owned();
        }
        match word.rsplit_once(':') {
            Some((latch, _)) if word.starts_with(LATCH) => format!("{latch}:<request>"),
            _ => word,
        }
    }

    pub(super) fn call(&self, words: Vec<String>) -> Call {
        let words: Vec<String> = words.into_iter().map(|word| self.word(word)).collect();
        let Some((keys, args)) = script(&words) else {
            return Call::Command(words);
        };
        let (keys, mut args) = (keys.to_vec(), args.to_vec());
        // Redisson 4 chooses the latch's time to live at random, and passes it last.
        if keys.iter().any(|key| key.starts_with(LATCH))
            && let Some(last) = args.last_mut()
        {
            "<latch ttl>".clone_into(last);
        }
        Call::Script { keys, args }
    }
}

/// A fair lock of Redisson passes its client's clock.
fn is_time(word: &str) -> bool {
    word.len() == 13 && word.starts_with('1') && word.bytes().all(|digit| digit.is_ascii_digit())
}

/// KEYS and ARGV, if the words are a script call.
fn script(words: &[String]) -> Option<(&[String], &[String])> {
    let [command, _text, count, rest @ ..] = words else {
        return None;
    };
    let is_script = matches!(command.to_uppercase().as_str(), "EVAL" | "EVALSHA");
    let count: usize = count.parse().ok().filter(|_| is_script)?;
    rest.split_at_checked(count)
}
