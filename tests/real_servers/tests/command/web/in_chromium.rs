//! `tidelock web` in a real browser.

use anyhow::{Context, Result, ensure};
use serde_json::json;
use testkit::process::Spawned;
use testkit::servers::RedisServer;

use super::browser::Web;
use super::chromium::Chromium;
use crate::{run, tidelock};

/// What a page says while it follows the store.
pub(super) const LIVE: &str = "document.querySelector('#stream').textContent.startsWith('live')";

/// The text of the row of a lock.
fn row(lock: &str) -> String {
    format!(
        "[...document.querySelectorAll('#locks tbody tr')].find((row) => row.dataset.key === {lock:?})?.innerText"
    )
}

/// A browser at a page, a Redis with a held lock `job`, and its holder.
pub(super) struct Stage {
    pub(super) server: RedisServer,
    pub(super) holder: Spawned,
    web: Web,
    pub(super) chromium: Chromium,
}

impl Stage {
    async fn new() -> Result<Self> {
        Self::with(&[]).await
    }

    /// With more flags of `tidelock web`.
    pub(super) async fn with(flags: &[&str]) -> Result<Self> {
        let server = RedisServer::start()?;
        let holder = run(&server, &[], "echo in; read line")?;
        let web = Web::start(&server.url(), flags)?;
        let chromium = Chromium::start(&[]).await?;
        let stage = Self {
            server,
            holder,
            web,
            chromium,
        };
        stage.goto("/").await?;
        stage.chromium.until(LIVE).await?;
        stage.chromium.until(&row("job")).await?;
        Ok(stage)
    }

    fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.web.at)
    }

    pub(super) async fn goto(&self, path: &str) -> Result<()> {
        Ok(self.chromium.tab.goto(&self.url(path)).await?)
    }

    /// A process that waits for the lock.
    fn wait_for_it(&self) -> Result<Spawned> {
        let waits = ["run", "job", "--", "true"];
        Spawned::start(tidelock(&self.server.url(), &waits)?)
    }
}

#[tokio::test]
async fn a_page_follows_the_store_until_it_is_frozen() -> Result<()> {
    let mut stage = Stage::new().await?;
    let page = &stage.chromium;
    // A mark that a new load of the page would not have.
    page.eval("window.sameLoad = true").await?;
    let _waiter = stage.wait_for_it()?;
    let is_awaited = "document.querySelector('[data-key=job]').classList.contains('contended')";
    page.until(is_awaited).await?;
    page.click("#freeze").await?;
    let text = "return document.querySelector('#locks').innerText";
    let frozen = page.eval(text).await?;
    stage.holder.write_line("go")?;
    // The store has changed, and others see it.
    stage
        .web
        .events("")?
        .until(|shows| !shows.contains("lock=job"))?;
    let page = &stage.chromium;
    ensure!(page.eval(text).await? == frozen, "it was frozen");
    // What is frozen can be read, sorted out and followed.
    page.click("[data-key=job] a").await?;
    page.until("document.querySelector('h1').textContent === 'job'")
        .await?;
    page.tab.back().await?;
    page.until("document.querySelector('#locks')").await?;
    ensure!(page.eval(text).await? == frozen, "it is still frozen");
    page.click("#freeze").await?;
    page.until(&format!("{LIVE} && !({})", row("job"))).await?;
    Ok(())
}

#[tokio::test]
async fn a_row_leads_to_the_lock_and_on_to_its_process() -> Result<()> {
    let stage = Stage::new().await?;
    let _waiter = stage.wait_for_it()?;
    let page = &stage.chromium;
    page.click("[data-key=job] a").await?;
    page.until("document.querySelector('h1').textContent === 'job'")
        .await?;
    // Its timeline has the hold that goes on.
    page.until("document.querySelector('#timeline rect.now')")
        .await?;
    page.until("document.querySelector('#waiting a')").await?;
    // With the keyboard as well: the focus stays on the link while the page changes.
    page.eval("document.querySelector('#holders a').focus()")
        .await?;
    let shown = "document.querySelector('#age').lastChild.data";
    let before = page.eval(&format!("return {shown}")).await?;
    page.until(&format!("{shown} !== {before}")).await?;
    page.until("document.activeElement === document.querySelector('#holders a')")
        .await?;
    page.eval("document.activeElement.click()").await?;
    page.until("document.querySelector('#holds a')?.textContent === 'job'")
        .await?;
    Ok(())
}

#[tokio::test]
async fn the_name_of_a_lock_runs_nothing() -> Result<()> {
    let stage = Stage::new().await?;
    let name = "<img src=x onerror=\"document.title='run'\">";
    let args = ["run", name, "--", "sh", "-c", "echo in; read line"];
    let mut holder = Spawned::start(tidelock(&stage.server.url(), &args)?)?;
    holder.wait_line("in", crate::SOON)?;
    let page = &stage.chromium;
    page.until(&row(name)).await?;
    for path in ["/", &format!("/?lock={}", urlencoded(name))] {
        stage.goto(path).await?;
        page.until(LIVE).await?;
        page.until("document.body.innerText.includes('onerror')")
            .await?;
        ensure!(page.eval("return document.images.length").await? == json!(0));
        let title = page.tab.title().await?;
        ensure!(title != "run", "the name was run");
    }
    Ok(())
}

fn urlencoded(text: &str) -> String {
    let bytes: Vec<String> = text.bytes().map(|byte| format!("%{byte:02x}")).collect();
    bytes.concat()
}

/// A browser has six connections to one host.
#[tokio::test]
async fn seven_tabs_at_once_are_live() -> Result<()> {
    let stage = Stage::new().await?;
    let page = &stage.chromium;
    let mut tabs = vec![page.tab.window().await?];
    for _ in 1..7 {
        tabs.push(page.open(&stage.url("/")).await?);
        page.until(LIVE).await?;
    }
    let _waiter = stage.wait_for_it()?;
    for tab in tabs {
        page.tab.switch_to_window(tab).await?;
        let is_awaited = "document.querySelector('[data-key=job].contended')";
        page.until(&format!("{LIVE} && {is_awaited}")).await?;
    }
    Ok(())
}

#[tokio::test]
async fn a_page_connects_again_when_its_server_is_back() -> Result<()> {
    let mut stage = Stage::new().await?;
    stage.web.process.kill()?;
    let page = &stage.chromium;
    page.until("document.querySelector('#stream').textContent.includes('lost')")
        .await?;
    let is_there = page
        .eval(&format!("return Boolean({})", row("job")))
        .await?;
    ensure!(is_there == json!(true), "the last picture stays");
    let listen = ["web", "--listen", &stage.web.at, "--every", "1s"];
    let mut again = Spawned::start(tidelock(&stage.server.url(), &listen)?)?;
    again.wait_line("http://", crate::SOON)?;
    page.until(LIVE).await
}

#[tokio::test]
async fn axe_finds_nothing_on_any_page_in_light_and_dark_and_on_a_phone() -> Result<()> {
    let stage = Stage::new().await?;
    let _waiter = stage.wait_for_it()?;
    // Two holds of one lock: a killed process stays in the picture as one that is gone.
    let mut killed = run_named(&stage, "orphan")?;
    killed.kill()?;
    let shown = stage
        .web
        .events("")?
        .until(|shows| shows.contains("process="))?
        .shows;
    let process = shown.split("process=").nth(1).context("a process")?;
    let process = process.split('"').next().context("a link")?;
    let paths = [
        "/",
        "/?lock=job",
        &format!("/?process={process}"),
        "/?lock=none",
        "/doctor",
    ];
    for (scheme, size) in [
        ("light", (1280, 900)),
        ("dark", (1280, 900)),
        ("light", (390, 844)),
    ] {
        let page = Chromium::start(&[&format!(
            "--blink-settings=preferredColorScheme={}",
            u8::from(scheme == "light")
        )])
        .await?;
        page.tab.set_window_rect(0, 0, size.0, size.1).await?;
        for path in paths {
            page.tab.goto(&stage.url(path)).await?;
            if path != "/doctor" {
                page.until(LIVE).await?;
            }
            let is_dark = page
                .eval("return matchMedia('(prefers-color-scheme: dark)').matches")
                .await?;
            ensure!(is_dark == json!(scheme == "dark"), "{scheme}");
            page.is_for_all().await?;
            let is_wider = "return document.documentElement.scrollWidth > document.documentElement.clientWidth";
            ensure!(
                page.eval(is_wider).await? == json!(false),
                "{path} at {size:?} is wider than the screen"
            );
            keep_picture(&page, path, scheme, size.0).await?;
        }
    }
    Ok(())
}

fn run_named(stage: &Stage, name: &str) -> Result<Spawned> {
    let args = ["run", name, "--", "sh", "-c", "echo in; read line"];
    let mut run = Spawned::start(tidelock(&stage.server.url(), &args)?)?;
    run.wait_line("in", crate::SOON)?;
    Ok(run)
}

/// With `TIDELOCK_WRITE_DOCS`, writes the pictures of the docs.
async fn keep_picture(page: &Chromium, path: &str, scheme: &str, width: u32) -> Result<()> {
    if std::env::var_os("TIDELOCK_WRITE_DOCS").is_none() {
        return Ok(());
    }
    let what = match path {
        "/" => "locks",
        "/?lock=job" => "lock",
        "/doctor" => "doctor",
        _ => return Ok(()),
    };
    let kind = if width < 500 { "phone" } else { scheme };
    let folder = testkit::workspace().join("docs/web");
    std::fs::create_dir_all(&folder)?;
    let picture = page.tab.screenshot_as_png().await?;
    Ok(std::fs::write(
        folder.join(format!("{what}-{kind}.png")),
        picture,
    )?)
}
