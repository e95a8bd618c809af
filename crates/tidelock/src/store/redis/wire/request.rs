//! Encodes requests in the Redis protocol: an array of bulk strings.

/// A request that can be written to a buffer, with as few copies as possible.
pub(crate) trait Encode {
    /// Appends the encoded request.
    fn write(&self, out: &mut Vec<u8>);

    /// Whether the slot is being migrated to this node, so that ASKING must come first.
    fn is_asking(&self) -> bool;
}

/// A request that owns its arguments.
#[derive(Debug, Clone)]
pub(crate) struct Request {
    count: usize,
    /// The arguments, encoded.
    bytes: Vec<u8>,
    asking: bool,
}

impl Request {
    pub(crate) fn new(command: &str) -> Self {
        let request = Self {
            count: 0,
            bytes: Vec::with_capacity(command.len() + 16),
            asking: false,
        };
        request.arg(command)
    }

    #[allow(clippy::needless_pass_by_value, reason = "numbers and references")]
    pub(crate) fn arg(mut self, arg: impl EncodeWord) -> Self {
        arg.write(&mut self.bytes);
        self.count += 1;
        self
    }

    /// Marks the request for ASKING: another node has redirected us to this one, which does not own the slot yet.
    pub(crate) fn asking(mut self, asking: bool) -> Self {
        self.asking = asking;
        self
    }
}

impl Encode for Request {
    fn write(&self, out: &mut Vec<u8>) {
        line(out, b'*', self.count);
        out.extend_from_slice(&self.bytes);
    }

    fn is_asking(&self) -> bool {
        self.asking
    }
}

/// A script call that borrows its arguments.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ScriptCall<'a> {
    pub(crate) how: &'static str,
    /// The script's hash, or its text.
    pub(crate) what: &'a str,
    pub(crate) keys: &'a [&'a str],
    pub(crate) args: &'a [&'a str],
    /// As in [`Request::asking`].
    pub(crate) asking: bool,
}

impl ScriptCall<'_> {
    /// Copies the arguments, for a caller that cannot keep the borrow.
    pub(crate) fn to_request(self) -> Request {
        let bytes = self.keys.iter().chain(self.args);
        let size: usize = bytes.clone().map(|word| word.len() + 8).sum();
        let mut request = Request::new(self.how).asking(self.asking);
        request.bytes.reserve(size + self.what.len() + 24);
        request = request.arg(self.what).arg(self.keys.len());
        bytes.fold(request, |request, word| request.arg(*word))
    }
}

impl Encode for ScriptCall<'_> {
    fn write(&self, out: &mut Vec<u8>) {
        line(out, b'*', 3 + self.keys.len() + self.args.len());
        self.how.write(out);
        self.what.write(out);
        self.keys.len().write(out);
        for word in self.keys.iter().chain(self.args) {
            word.write(out);
        }
    }

    fn is_asking(&self) -> bool {
        self.asking
    }
}

/// An argument of a request.
pub(crate) trait EncodeWord {
    fn write(&self, out: &mut Vec<u8>);
}

impl EncodeWord for &[u8] {
    fn write(&self, out: &mut Vec<u8>) {
        line(out, b'$', self.len());
        out.extend_from_slice(self);
        out.extend_from_slice(b"\r\n");
    }
}

impl EncodeWord for &str {
    fn write(&self, out: &mut Vec<u8>) {
        self.as_bytes().write(out);
    }
}

impl EncodeWord for &String {
    fn write(&self, out: &mut Vec<u8>) {
        self.as_bytes().write(out);
    }
}

impl EncodeWord for String {
    fn write(&self, out: &mut Vec<u8>) {
        self.as_bytes().write(out);
    }
}

macro_rules! numbers {
    ($($number:ty),*) => {$(
        impl EncodeWord for $number {
            fn write(&self, out: &mut Vec<u8>) {
                itoa::Buffer::new().format(*self).write(out);
            }
        }
    )*};
}
numbers!(i32, i64, u32, u64, usize);

/// Appends a type byte and a number. Most numbers have one or two digits.
fn line(out: &mut Vec<u8>, kind: u8, number: usize) {
    #[allow(clippy::cast_possible_truncation, reason = "less than ten")]
    let digit = |number: usize| b'0' + number as u8;
    match number {
        0..10 => out.extend_from_slice(&[kind, digit(number), b'\r', b'\n']),
        10..100 => {
            let (tens, ones) = (digit(number / 10), digit(number % 10));
            out.extend_from_slice(&[kind, tens, ones, b'\r', b'\n']);
        }
        _ => {
            out.push(kind);
            out.extend_from_slice(itoa::Buffer::new().format(number).as_bytes());
            out.extend_from_slice(b"\r\n");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(bytes: &impl Encode) -> String {
        let mut out = Vec::new();
        bytes.write(&mut out);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn words_are_counted_and_measured() {
        let request = Request::new("SET").arg("ключ").arg(-7).arg(String::new());
        let expected = "*4\r\n$3\r\nSET\r\n$8\r\nключ\r\n$2\r\n-7\r\n$0\r\n\r\n";
        assert_eq!(written(&request), expected);
    }

    #[test]
    fn lengths_have_as_many_digits_as_they_need() {
        for length in [0, 9, 10, 99, 100, 12345] {
            let word = "x".repeat(length);
            let expected = format!("*1\r\n${length}\r\n{word}\r\n");
            assert_eq!(written(&Request::new(&word)), expected);
        }
    }

    #[test]
    fn a_call_says_the_same_from_both_places() {
        let call = ScriptCall {
            how: "EVALSHA",
            what: "e0e1f9fabfc9d4800c877a703b823ac0578ff8db",
            keys: &["a", "b"],
            args: &["30000"],
            asking: true,
        };
        assert_eq!(written(&call), written(&call.to_request()));
        assert!(written(&call).starts_with("*6\r\n$7\r\nEVALSHA\r\n$40\r\ne0e1"));
        assert!(written(&call).ends_with("$1\r\n2\r\n$1\r\na\r\n$1\r\nb\r\n$5\r\n30000\r\n"));
        for asking in [true, false] {
            let call = ScriptCall { asking, ..call };
            let is_asking = (call.is_asking(), call.to_request().is_asking());
            assert_eq!(is_asking, (asking, asking));
        }
    }
}
