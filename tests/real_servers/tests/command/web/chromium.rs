//! A real browser: Chromium without a window, driven by chromedriver.

use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use tempfile::TempDir;
use testkit::process::Spawned;
use thirtyfour::{By, Capabilities, WebDriver, WindowHandle};

use crate::SOON;

/// Between two looks at a page for what it does not show yet.
const SHORT: Duration = Duration::from_millis(20);

/// Several browsers need the processors at once.
const LONGEST: Duration = Duration::from_secs(60);

/// A browser with one tab.
pub(super) struct Chromium {
    /// The tab that is seen.
    pub(super) tab: WebDriver,
    _driver: Spawned,
    _profile: TempDir,
}

impl Drop for Chromium {
    fn drop(&mut self) {
        // Otherwise the library would wait here for a browser that ends by itself. An error means that it has ended.
        let _ = self.tab.clone().leak();
    }
}

impl Chromium {
    /// With more arguments.
    pub(super) async fn start(flags: &[&str]) -> Result<Self> {
        let mut driver = Command::new("chromedriver");
        driver.arg("--port=0");
        let mut driver = Spawned::start(driver).context("run `cargo xtask servers`")?;
        // Several browsers start at once, from a disk that may be slow.
        let line = driver.wait_line("started successfully on port", SOON * 3)?;
        let port = line.rsplit(' ').next().unwrap_or_default();
        let port: u16 = port.trim_end_matches('.').parse().context(line.clone())?;
        let profile = tempfile::tempdir()?;
        let folder = format!("--user-data-dir={}", profile.path().display());
        // Over a pipe, the browser ends with its driver, and so with this process, however it ends.
        let own = ["--headless=new", "--no-sandbox", "--disable-dev-shm-usage"];
        let pipe = ["--remote-debugging-pipe", "--hide-scrollbars", &folder];
        let args = [&own, &pipe, flags].concat();
        let options = json!({ "goog:chromeOptions": { "args": args } });
        let wanted: Capabilities = serde_json::from_value(options)?;
        let tab = WebDriver::new(format!("http://127.0.0.1:{port}"), wanted).await?;
        Ok(Self {
            tab,
            _driver: driver,
            _profile: profile,
        })
    }

    /// What a script in the tab returns.
    pub(super) async fn eval(&self, script: &str) -> Result<Value> {
        Ok(self.tab.execute(script, Vec::new()).await?.json().clone())
    }

    /// Waits until an expression in the tab is true. An exception counts as false, because the page may not have the element yet.
    pub(super) async fn until(&self, what: &str) -> Result<()> {
        let begun = Instant::now();
        let script =
            format!("try {{ return Boolean({what}) }} catch (error) {{ return String(error) }}");
        loop {
            let seen = self.eval(&script).await?;
            if seen == json!(true) {
                return Ok(());
            }
            if begun.elapsed() > LONGEST {
                let shown = self.eval("return document.body?.innerText").await?;
                anyhow::bail!("{seen} after {LONGEST:?}: {what}; shown: {shown}");
            }
            tokio::time::sleep(SHORT).await;
        }
    }

    /// Clicks on the first element that a selector finds.
    pub(super) async fn click(&self, selector: &str) -> Result<()> {
        let element = self.tab.find(By::Css(selector)).await?;
        Ok(element.click().await?)
    }

    /// Opens one more tab, which is seen from now on.
    pub(super) async fn open(&self, url: &str) -> Result<WindowHandle> {
        let opened = self.tab.new_tab().await?;
        self.tab.switch_to_window(opened.clone()).await?;
        self.tab.goto(url).await?;
        Ok(opened)
    }

    /// Fails if axe finds something that keeps people from using the page.
    pub(super) async fn is_for_all(&self) -> Result<()> {
        let axe = testkit::workspace().join("target/tools/axe/package/axe.min.js");
        let axe = std::fs::read_to_string(axe).context("run `cargo xtask servers`")?;
        self.eval(&axe).await?;
        let run = "const done = arguments[arguments.length - 1];
            axe.run().then((found) => done(found.violations), (error) => done(String(error)));";
        let found = self.tab.execute_async(run, Vec::new()).await?;
        let found = found.json();
        let at = self.tab.current_url().await?;
        ensure!(*found == json!([]), "{at}: {found:#}");
        Ok(())
    }
}
