//! Reading the params of a call, one member at a time; every refusal names the path.

use crate::error::Error;
use crate::json::{self, Kind, Value};
use crate::time;

/// The longest id, in bytes.
pub(crate) const MAX_ID_BYTES: usize = 256;

/// An object whose members have been picked out, and where it stands.
pub(crate) struct Picked<'a, const N: usize> {
    path: &'static str,
    names: [&'static str; N],
    values: [Option<Value<'a>>; N],
}

/// Picks members of the object at `path` ("" for the params themselves).
pub(crate) fn pick<'a, const N: usize>(
    object: Option<Value<'a>>,
    path: &'static str,
    names: [&'static str; N],
) -> Result<Picked<'a, N>, Error> {
    let Some(object) = object else { return Ok(Picked { path, names, values: [None; N] }) };
    if !object.is_object() {
        return Err(Error::invalid_params(if path.is_empty() { "params" } else { path }, "must be an object"));
    }
    let values = json::fields(object, names)
        .map_err(|name| Error::invalid_params(&join(path, name), "occurs twice, perhaps in two spellings"))?;
    Ok(Picked { path, names, values })
}

pub(crate) fn join(path: &str, name: &str) -> String {
    if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") }
}

impl<'a, const N: usize> Picked<'a, N> {
    pub(crate) fn value(&self, name: &str) -> Option<Value<'a>> {
        self.names.iter().position(|known| *known == name).and_then(|index| self.values[index])
    }

    fn wrong(&self, name: &str, why: &str) -> Error {
        Error::invalid_params(&join(self.path, name), why)
    }

    /// A string of any content; `""` counts as absent.
    pub(crate) fn text(&self, name: &str) -> Result<Option<String>, Error> {
        let Some(value) = self.value(name) else { return Ok(None) };
        let text = value.as_exact_str().ok_or_else(|| self.wrong(name, "must be a string"))?;
        Ok((!text.is_empty()).then(|| text.into_owned()))
    }

    /// An id: bounded, without control characters; `""` counts as absent.
    pub(crate) fn id(&self, name: &str) -> Result<Option<String>, Error> {
        self.value(name).map_or(Ok(None), |value| read_id(value, || join(self.path, name)))
    }

    /// A tenant. Some carry it in a path, where it must not lead to another place.
    pub(crate) fn tenant(&self) -> Result<Option<String>, Error> {
        let tenant = self.id("tenant")?;
        match tenant.as_deref().is_some_and(|tenant| tenant.split(['/', '\\']).any(|part| matches!(part, "." | ".."))) {
            true => Err(self.wrong("tenant", "must not hold a path segment `.` or `..`")),
            false => Ok(tenant),
        }
    }

    /// An id that must be there.
    pub(crate) fn required_id(&self, name: &str) -> Result<String, Error> {
        self.id(name)?.ok_or_else(|| self.wrong(name, "is required"))
    }

    pub(crate) fn flag(&self, name: &str) -> Result<Option<bool>, Error> {
        let Some(value) = self.value(name) else { return Ok(None) };
        value.as_bool().map(Some).ok_or_else(|| self.wrong(name, "must be true or false"))
    }

    /// An int32 within `range`. protobuf's JSON allows a decimal string, too.
    pub(crate) fn int(&self, name: &str, range: std::ops::RangeInclusive<i64>) -> Result<Option<u32>, Error> {
        let Some(value) = self.value(name) else { return Ok(None) };
        let number = value.as_i64().or_else(|| value.as_str()?.parse().ok());
        match number.filter(|number| range.contains(number)).map(u32::try_from) {
            Some(Ok(number)) => Ok(Some(number)),
            Some(Err(_)) | None => {
                Err(self.wrong(name, &format!("must be a whole number from {} to {}", range.start(), range.end())))
            }
        }
    }

    /// An RFC 3339 timestamp, rounded up to the millisecond.
    pub(crate) fn timestamp(&self, name: &str) -> Result<Option<i64>, Error> {
        let Some(text) = self.text(name)? else { return Ok(None) };
        time::parse_up(&text).map(Some).ok_or_else(|| self.wrong(name, "must be an RFC 3339 timestamp"))
    }

    pub(crate) fn object(&self, name: &str) -> Result<Option<Value<'a>>, Error> {
        self.of_kind(name, Kind::Object, "must be an object")
    }

    pub(crate) fn array(&self, name: &str) -> Result<Option<Value<'a>>, Error> {
        self.of_kind(name, Kind::Array, "must be an array")
    }

    fn of_kind(&self, name: &str, kind: Kind, why: &str) -> Result<Option<Value<'a>>, Error> {
        match self.value(name) {
            Some(value) if value.kind() != kind => Err(self.wrong(name, why)),
            value => Ok(value),
        }
    }
}

/// An id as a string of at most [`MAX_ID_BYTES`]; `None` if it is empty.
pub(crate) fn read_id(value: Value<'_>, path: impl Fn() -> String) -> Result<Option<String>, Error> {
    let wrong = |why: &str| Error::invalid_params(&path(), why);
    let text = value.as_exact_str().ok_or_else(|| wrong("must be a string"))?;
    if text.len() > MAX_ID_BYTES {
        return Err(wrong(&format!("must be at most {MAX_ID_BYTES} bytes long")));
    }
    if text.chars().any(char::is_control) {
        return Err(wrong("must not contain control characters"));
    }
    Ok((!text.is_empty()).then(|| text.into_owned()))
}
