//! The looks of the screen at a store whose errors no retry changes.

use std::time::Duration;

use clap::Parser;
use tidelock::Client;
use tokio::sync::mpsc::channel;

use super::super::look_again_and_again;
use crate::args::Cli;
use crate::covers::Shown;
use crate::exit::{self, Outcome};
use crate::top::SHORTEST;
use crate::top::pace::Looks;
use crate::top::picture::Picture;

fn store() -> Shown {
    let cli = Cli::try_parse_from(["tidelock", "--store=memory:", "top"]).unwrap();
    Shown::of(&cli.store).unwrap()
}

/// A store that keeps no records of processes.
#[tokio::test]
async fn a_first_look_that_can_never_succeed_ends_the_screen() {
    let client = Client::connect("memory:looking?like=memcached");
    let (client, store) = (client.await.unwrap(), store());
    let (sender, mut pictures) = channel::<Outcome<Picture>>(1);
    let looks = Looks::new(&client, "", SHORTEST);
    tokio::select! {
        ended = look_again_and_again(looks, sender, None, &store) => {
            assert_eq!(ended.unwrap_err().code, exit::USAGE);
        }
        seen = pictures.recv() => panic!("it goes on after {seen:?}"),
    }
}

#[tokio::test]
async fn an_error_after_the_first_picture_does_not_end_the_screen() {
    let (client, store) = (Client::connect("memory:").await.unwrap(), store());
    let (sender, mut pictures) = channel::<Outcome<Picture>>(1);
    let looks = Looks::new(&client, "", SHORTEST);
    let viewer = async {
        assert!(pictures.recv().await.unwrap().is_ok());
        client.close(Duration::ZERO).await;
        let failure = pictures.recv().await.unwrap().unwrap_err();
        assert!(!failure.is_retryable, "{failure:?}");
    };
    tokio::select! {
        ended = look_again_and_again(looks, sender, None, &store) => panic!("{ended:?}"),
        () = viewer => {}
    }
}
