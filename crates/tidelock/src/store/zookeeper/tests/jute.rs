//! The wire format of ZooKeeper.

/// Reads the fields of a frame, one after the other.
pub(super) struct JuteReader<'a>(pub(super) &'a [u8]);

impl<'a> JuteReader<'a> {
    fn take(&mut self, count: usize) -> &'a [u8] {
        let (taken, rest) = self.0.split_at(count);
        self.0 = rest;
        taken
    }

    pub(super) fn int(&mut self) -> i32 {
        i32::from_be_bytes(self.take(4).try_into().unwrap())
    }

    pub(super) fn long(&mut self) -> i64 {
        i64::from_be_bytes(self.take(8).try_into().unwrap())
    }

    pub(super) fn flag(&mut self) -> bool {
        self.take(1)[0] == 1
    }

    pub(super) fn bytes(&mut self) -> Vec<u8> {
        // The length of no data at all is -1.
        let length = usize::try_from(self.int()).unwrap_or(0);
        self.take(length).to_vec()
    }

    pub(super) fn text(&mut self) -> String {
        String::from_utf8(self.bytes()).unwrap()
    }
}

/// Writes the fields of a frame.
#[derive(Debug, Default)]
pub(super) struct JuteWriter(Vec<u8>);

impl JuteWriter {
    pub(super) fn int(mut self, number: i32) -> Self {
        self.0.extend(number.to_be_bytes());
        self
    }

    pub(super) fn long(mut self, number: i64) -> Self {
        self.0.extend(number.to_be_bytes());
        self
    }

    pub(super) fn flag(mut self, flag: bool) -> Self {
        self.0.push(u8::from(flag));
        self
    }

    pub(super) fn size(self, size: usize) -> Self {
        self.int(i32::try_from(size).unwrap())
    }

    pub(super) fn bytes(self, bytes: &[u8]) -> Self {
        self.size(bytes.len()).fields(bytes)
    }

    pub(super) fn text(self, text: &str) -> Self {
        self.bytes(text.as_bytes())
    }

    /// Fields that are written already.
    fn fields(mut self, fields: &[u8]) -> Self {
        self.0.extend_from_slice(fields);
        self
    }

    /// The same fields behind those of `before`.
    pub(super) fn behind(self, before: Self) -> Self {
        before.fields(&self.0)
    }

    /// The fields behind their length.
    pub(super) fn frame(self) -> Vec<u8> {
        Self::default().bytes(&self.0).0
    }
}

/// Takes the next whole frame from what was read.
pub(super) fn cut_frame(read: &mut Vec<u8>) -> Option<Vec<u8>> {
    let length = read.first_chunk::<4>()?;
    let end = 4 + usize::try_from(i32::from_be_bytes(*length)).unwrap();
    if read.len() < end {
        return None;
    }
    let rest = read.split_off(end);
    let frame = std::mem::replace(read, rest);
    Some(frame[4..].to_vec())
}
