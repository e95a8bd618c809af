//! The dialog that unlocks a lock, in a real browser.

use anyhow::{Result, ensure};
use serde_json::json;
use testkit::servers::RedisServer;

use super::chromium::Chromium;
use super::in_chromium::{LIVE, Stage};
use crate::{run, say};

const TOKEN: &str = "sesame-sesame-sesame";

/// Whether the dialog has said this.
fn said(text: &str) -> String {
    format!("document.querySelector('#said').textContent.includes({text:?})")
}

async fn submit(page: &Chromium, form: &str, input: &str, text: &str) -> Result<()> {
    let fill = format!("document.querySelector({input:?}).value = {text:?}");
    page.eval(&fill).await?;
    page.click(&format!("{form} button")).await
}

fn is_held(server: &RedisServer) -> Result<bool> {
    let shown = say(&server.url(), &["show", "job", "--json"])?.objects()?;
    Ok(shown[0]["locked"] == json!(true))
}

/// The page itself follows the store while the name is typed. The dialog keeps to the holder that it has shown.
#[tokio::test]
async fn an_unlock_is_refused_after_the_owner_has_changed() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let file = folder.path().join("token");
    std::fs::write(&file, TOKEN)?;
    let file = file.display().to_string();
    let mut stage = Stage::with(&["--write", "--write-token-file", &file]).await?;
    stage.goto("/?lock=job").await?;
    stage.chromium.until(LIVE).await?;
    stage.chromium.click("#unlock").await?;
    submit(
        &stage.chromium,
        "#look",
        "#token",
        "not the token, but as long",
    )
    .await?;
    stage.chromium.until(&said("not the token")).await?;
    submit(&stage.chromium, "#look", "#token", TOKEN).await?;
    let is_shown = "document.querySelector('#holder').checkVisibility()";
    stage.chromium.until(is_shown).await?;
    stage.chromium.is_for_all().await?;
    stage.holder.write_line("go")?;
    let _other = run(&stage.server, &[], "echo in; read line")?;
    let page = &stage.chromium;
    submit(page, "#confirm", "#name", "job").await?;
    page.until(&said("not unlocked")).await?;
    ensure!(is_held(&stage.server)?, "the next holder lost it");
    // Once the operator has seen who holds it now, it can be unlocked.
    page.click("#look button").await?;
    page.until(is_shown).await?;
    submit(page, "#confirm", "#name", "jobs").await?;
    page.until(&said("not its name")).await?;
    ensure!(is_held(&stage.server)?, "the name was wrong");
    submit(page, "#confirm", "#name", "job").await?;
    page.until(&said("job: unlocked")).await?;
    ensure!(!is_held(&stage.server)?);
    Ok(())
}
