//! One task that enters a barrier, stays inside for a while, and leaves it in one of all possible ways.

use std::rc::Rc;
use std::time::Duration;

use fastrand::Rng;
use tidelock::{Barrier, BarrierGuard, ErrorKind};
use tokio::time::{sleep, timeout};

use crate::referee::Referee;

pub(crate) struct Member {
    pub(crate) who: String,
    /// The id of its client.
    pub(crate) client: String,
    pub(crate) barrier: Barrier,
    pub(crate) size: usize,
    pub(crate) rounds: usize,
    pub(crate) lease: Duration,
    pub(crate) dice: Rng,
    pub(crate) referee: Rc<Referee>,
}

impl Member {
    pub(crate) async fn live(mut self) {
        for _ in 0..self.rounds {
            let idle = self.up_to(self.lease / 4);
            sleep(idle).await;
            if let Some(inside) = self.enter().await {
                self.stay(inside).await;
            }
        }
        self.referee.note(format_args!("{} is done", self.who));
    }

    fn up_to(&mut self, most: Duration) -> Duration {
        most.mul_f64(self.dice.f64())
    }

    async fn enter(&mut self) -> Option<Rc<BarrierGuard>> {
        let patience = self.up_to(self.lease * 3);
        let answer = match self.dice.u8(..100) {
            0..45 => self.barrier.enter_timeout(patience).await,
            45..60 => {
                let Ok(answer) = timeout(patience, self.barrier.enter()).await else {
                    self.no_answer("turns away");
                    return None;
                };
                answer
            }
            // The limit is longer than any outage. Without a limit it would wait without end if the others have left the story.
            _ => self.barrier.enter_timeout(self.lease * 12).await,
        };
        match answer {
            Ok(inside) => {
                let inside = Rc::new(inside);
                self.referee.enters(&self.who, self.size, &inside);
                Some(inside)
            }
            Err(error) if error.is_timeout() => {
                self.referee
                    .note(format_args!("{} is not inside: {error}", self.who));
                None
            }
            Err(error) => {
                let expected = [
                    ErrorKind::Unavailable,
                    ErrorKind::OutcomeUnknown,
                    ErrorKind::Lost,
                ];
                if !expected.contains(&error.kind()) {
                    self.referee
                        .blame(format!("{} could not enter: {error}", self.who));
                }
                self.no_answer(&error.to_string());
                None
            }
        }
    }

    fn no_answer(&self, why: &str) {
        self.referee
            .note(format_args!("{} does not know: {why}", self.who));
        self.referee.enters_unanswered(&self.client);
    }

    async fn stay(&mut self, inside: Rc<BarrierGuard>) {
        for _ in 0..self.dice.usize(..5) {
            if !inside.is_held() {
                break;
            }
            let step = self.up_to(self.lease / 2);
            if let Ok(reason) = timeout(step, inside.lost()).await {
                self.referee.lost("the barrier", &self.who, reason);
                if inside.is_held() {
                    let why = format!("{} was told of a loss and is inside", self.who);
                    self.referee.blame(why);
                }
                break;
            }
        }
        self.referee.leaves(&inside);
        let together = inside.together().to_vec();
        let Some(inside) = Rc::into_inner(inside) else {
            return self.referee.blame("a guard was kept".to_owned());
        };
        let left = match self.dice.u8(..100) {
            0..20 => {
                self.referee.note(format_args!("{} drops it", self.who));
                return drop(inside);
            }
            20..35 => {
                let patience = self.up_to(self.lease / 20);
                match timeout(patience, inside.leave()).await {
                    Ok(left) => left,
                    Err(_) => {
                        return self
                            .referee
                            .note(format_args!("{} does not wait for the others", self.who));
                    }
                }
            }
            35..55 => {
                let patience = self.up_to(self.lease * 2);
                inside.leave_timeout(patience).await
            }
            _ => inside.leave().await,
        };
        self.referee
            .note(format_args!("{} leaves: {left:?}", self.who));
        if left.is_ok() {
            self.referee
                .all_left(self.barrier.name(), &self.who, &together);
        }
    }
}

/// After the last fault the barrier opens again: as many members as it has enter, and leave.
pub(crate) async fn opens(
    barriers: &[Barrier],
    clients: &[String],
    size: usize,
    lease: Duration,
    referee: &Referee,
) {
    /// The injected faults go on, so a member may have no answer.
    const TRIES: usize = 5;
    let mut why = String::new();
    for _ in 0..TRIES {
        let mut entering = tokio::task::JoinSet::new();
        for n in 0..size {
            let (at, barrier) = (n % barriers.len(), barriers[n % barriers.len()].clone());
            entering.spawn_local(async move { (at, barrier.enter_timeout(lease * 12).await) });
        }
        let (mut inside, mut failed) = (Vec::new(), false);
        while let Some(entered) = entering.join_next().await {
            match entered {
                Ok((_, Ok(guard))) => {
                    let guard = Rc::new(guard);
                    referee.enters("the last", size, &guard);
                    inside.push(guard);
                }
                Ok((at, Err(error))) => {
                    failed = true;
                    why = error.to_string();
                    if !error.is_timeout() {
                        referee.enters_unanswered(&clients[at]);
                    }
                }
                Err(error) => referee.blame(format!("somebody died of it: {error}")),
            }
        }
        for guard in &inside {
            referee.leaves(guard);
        }
        for guard in inside.into_iter().filter_map(Rc::into_inner) {
            drop(guard);
        }
        if !failed {
            return;
        }
    }
    referee.blame(format!("the barrier does not open any more: {why}"));
}
