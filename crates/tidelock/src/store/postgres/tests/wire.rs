//! The messages of the protocol, as a server writes and reads them.

use tokio_postgres::types::Type;

/// The answer of a server to one request.
#[derive(Debug, Clone)]
pub(crate) enum ServerAnswer {
    /// Rows of the same columns. Without a row, the statement returns none.
    Rows(Vec<Vec<Cell>>),
    /// An error with this code. The session goes on.
    Fails(&'static str),
    /// This request and all later ones of the connection are never answered.
    Silence,
    /// The server closes the connection.
    HangsUp,
}

/// A column of a row.
#[derive(Debug, Clone)]
pub(crate) enum Cell {
    Int(i32),
    Big(i64),
    Text(String),
    Flag(bool),
    Ints(Vec<i32>),
    /// Null, in a column of this type.
    Null(Type),
}

/// No row.
pub(crate) const NOTHING: ServerAnswer = ServerAnswer::Rows(Vec::new());

/// The code for a missing table.
pub(crate) const NO_TABLE: ServerAnswer = ServerAnswer::Fails("42P01");

/// The code for a row that another transaction locks.
pub(crate) const ROW_TAKEN: ServerAnswer = ServerAnswer::Fails("55P03");

/// The code for a missing right.
pub(crate) const NO_RIGHT: ServerAnswer = ServerAnswer::Fails("42501");

/// One row.
pub(crate) fn row(cells: impl Into<Vec<Cell>>) -> ServerAnswer {
    ServerAnswer::Rows(vec![cells.into()])
}

/// Several rows of one column.
pub(crate) fn column(cells: impl IntoIterator<Item = Cell>) -> ServerAnswer {
    ServerAnswer::Rows(cells.into_iter().map(|cell| vec![cell]).collect())
}

pub(crate) fn int(number: i32) -> Cell {
    Cell::Int(number)
}

pub(crate) fn big(number: i64) -> Cell {
    Cell::Big(number)
}

pub(crate) fn text(text: impl Into<String>) -> Cell {
    Cell::Text(text.into())
}

pub(crate) fn flag(is_set: bool) -> Cell {
    Cell::Flag(is_set)
}

pub(crate) fn null(of: Type) -> Cell {
    Cell::Null(of)
}

impl Cell {
    fn of_type(&self) -> Type {
        match self {
            Self::Int(_) => Type::INT4,
            Self::Big(_) => Type::INT8,
            Self::Text(_) => Type::TEXT,
            Self::Flag(_) => Type::BOOL,
            Self::Ints(_) => Type::INT4_ARRAY,
            Self::Null(of) => of.clone(),
        }
    }

    /// As in the answer to a statement with typed parameters.
    fn binary(&self) -> Option<Vec<u8>> {
        Some(match self {
            Self::Int(number) => number.to_be_bytes().to_vec(),
            Self::Big(number) => number.to_be_bytes().to_vec(),
            Self::Text(text) => text.as_bytes().to_vec(),
            Self::Flag(is_set) => vec![u8::from(*is_set)],
            Self::Ints(numbers) => {
                let of = i32::try_from(Type::INT4.oid()).unwrap();
                let length = i32::try_from(numbers.len()).unwrap();
                let head = [1, 0, of, length, 1].into_iter();
                let each = numbers.iter().flat_map(|number| [4, *number]);
                head.chain(each).flat_map(i32::to_be_bytes).collect()
            }
            Self::Null(_) => return None,
        })
    }

    /// As in the answer to a text of several statements.
    fn readable(&self) -> Option<Vec<u8>> {
        let text = match self {
            Self::Int(number) => number.to_string(),
            Self::Big(number) => number.to_string(),
            Self::Text(text) => text.clone(),
            Self::Flag(true) => "t".to_owned(),
            Self::Flag(false) => "f".to_owned(),
            Self::Ints(_) | Self::Null(_) => return None,
        };
        Some(text.into_bytes())
    }
}

/// A message of the server.
pub(crate) fn message(letter: u8, body: &[u8]) -> Vec<u8> {
    let length = u32::try_from(body.len() + 4).unwrap();
    [&[letter][..], &length.to_be_bytes(), body].concat()
}

/// The messages of an answer. `is_typed`: to a statement with typed parameters.
pub(crate) fn encoded(answer: &ServerAnswer, is_typed: bool) -> Vec<u8> {
    let mut messages = Vec::new();
    match answer {
        ServerAnswer::Rows(rows) => {
            if is_typed {
                messages.extend([message(b'1', &[]), message(b'2', &[])]);
            }
            match rows.first() {
                Some(first) => messages.push(message(b'T', &description(first))),
                None if is_typed => messages.push(message(b'n', &[])),
                None => {}
            }
            let rows = rows
                .iter()
                .map(|cells| message(b'D', &data(cells, is_typed)));
            messages.extend(rows);
            messages.push(message(b'C', b"SELECT 0\0"));
        }
        ServerAnswer::Fails(code) => {
            let fields = format!("SERROR\0C{code}\0Mthe server says no\0\0");
            messages.push(message(b'E', fields.as_bytes()));
        }
        ServerAnswer::Silence | ServerAnswer::HangsUp => {}
    }
    messages.push(message(b'Z', b"I"));
    messages.concat()
}

fn length(count: usize) -> [u8; 2] {
    i16::try_from(count).unwrap().to_be_bytes()
}

fn description(cells: &[Cell]) -> Vec<u8> {
    let mut body = length(cells.len()).to_vec();
    for cell in cells {
        let of = cell.of_type().oid().to_be_bytes();
        // The name, no table, no column, the type, and its size, modifier and format.
        let field = [&b"c\0"[..], &[0; 6], &of, &[0; 2], &[255; 4], &[0; 2]];
        body.extend(field.concat());
    }
    body
}

fn data(cells: &[Cell], is_typed: bool) -> Vec<u8> {
    let mut body = length(cells.len()).to_vec();
    for cell in cells {
        let bytes = if is_typed {
            cell.binary()
        } else {
            cell.readable()
        };
        let size = bytes
            .as_ref()
            .map_or(-1, |it| i32::try_from(it.len()).unwrap());
        body.extend(size.to_be_bytes());
        body.extend(bytes.unwrap_or_default());
    }
    body
}

/// A statement without a name, and its parameters.
#[derive(Debug, Default)]
pub(crate) struct BoundStatement {
    pub(crate) text: String,
    types: Vec<u32>,
    pub(crate) params: Vec<String>,
}

impl BoundStatement {
    /// From the message that parses it.
    pub(crate) fn parsed(body: &[u8]) -> Self {
        let mut rest = body;
        let (_, text) = (word(&mut rest), word(&mut rest));
        let count = short(&mut rest);
        let types = (0..count).map(|_| long(&mut rest).unsigned_abs()).collect();
        Self {
            text,
            types,
            params: Vec::new(),
        }
    }

    /// From the message with the values.
    pub(crate) fn bind(&mut self, body: &[u8]) {
        let mut rest = body;
        let (_, _) = (word(&mut rest), word(&mut rest));
        for _ in 0..short(&mut rest) {
            short(&mut rest);
        }
        let count = short(&mut rest);
        let values = (0..count).map(|_| value(&mut rest)).collect::<Vec<_>>();
        let typed = self.types.iter().zip(values);
        self.params = typed.map(|(of, bytes)| shown(*of, bytes)).collect();
    }
}

/// A parameter as a text. Those of an array are between commas.
fn shown(of: u32, bytes: Option<&[u8]>) -> String {
    let Some(bytes) = bytes else {
        return "null".to_owned();
    };
    match Type::from_oid(of) {
        Some(Type::INT8) => i64::from_be_bytes(bytes.try_into().unwrap()).to_string(),
        Some(Type::INT4) => i32::from_be_bytes(bytes.try_into().unwrap()).to_string(),
        Some(Type::TEXT_ARRAY) => elements(Type::TEXT.oid(), bytes),
        Some(Type::INT8_ARRAY) => elements(Type::INT8.oid(), bytes),
        _ => String::from_utf8_lossy(bytes).into_owned(),
    }
}

fn elements(of: u32, bytes: &[u8]) -> String {
    let mut rest = bytes;
    let dimensions = long(&mut rest);
    // Whether there are nulls, and the type.
    let (_, _) = (long(&mut rest), long(&mut rest));
    if dimensions == 0 {
        return String::new();
    }
    let (count, _) = (long(&mut rest), long(&mut rest));
    let each = (0..count).map(|_| shown(of, value(&mut rest)));
    each.collect::<Vec<_>>().join(",")
}

/// The next text, which ends with a zero.
fn word(rest: &mut &[u8]) -> String {
    let bytes = *rest;
    let end = bytes.iter().position(|byte| *byte == 0).unwrap();
    *rest = &bytes[end + 1..];
    String::from_utf8_lossy(&bytes[..end]).into_owned()
}

fn short(rest: &mut &[u8]) -> i16 {
    let (first, others) = rest.split_first_chunk::<2>().unwrap();
    *rest = others;
    i16::from_be_bytes(*first)
}

fn long(rest: &mut &[u8]) -> i32 {
    let (first, others) = rest.split_first_chunk::<4>().unwrap();
    *rest = others;
    i32::from_be_bytes(*first)
}

/// The next value with its length before it. `None`: it is null.
fn value<'a>(rest: &mut &'a [u8]) -> Option<&'a [u8]> {
    let size = usize::try_from(long(rest)).ok()?;
    let (bytes, others) = rest.split_at(size);
    *rest = others;
    Some(bytes)
}
