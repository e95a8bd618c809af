# The formula for Homebrew. `cargo xtask dist` writes it with the version and the checksum of the Linux archive; a tap needs
# the address of the release in place of `@ADDRESS@`.
class Tidelock < Formula
  desc "Run a program under a distributed lock, and see who holds what"
  homepage "https://docs.rs/tidelock"
  url "@ADDRESS@/v@VERSION@/@ARCHIVE@"
  sha256 "@SHA256@"
  license any_of: ["MIT", "Apache-2.0"]

  def install
    bin.install "tidelock"
    man1.install Dir["man/*.1"]
    bash_completion.install "completions/tidelock.bash" => "tidelock"
    zsh_completion.install "completions/_tidelock"
    fish_completion.install "completions/tidelock.fish"
  end

  test do
    system bin/"tidelock", "--store", "sqlite:#{testpath}/locks.db", "run", "job", "--", "true"
  end
end
