//! Parts of a message from the command line: texts, data, files. Read whole, within what a gateway takes.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use crate::cli::args::Part;
use crate::cli::exit::Failure;

/// What a gateway takes in one request where it is not told otherwise (`max_request_bytes`), less room for the rest.
const MOST: u64 = (16 << 20) - (64 << 10);

/// The parts, in order.
pub(super) fn parts(given: &[Part]) -> Result<Vec<Value>, Failure> {
    let mut left = MOST;
    given.iter().map(|part| one(part, &mut left)).collect()
}

fn one(part: &Part, left: &mut u64) -> Result<Value, Failure> {
    match part {
        Part::Text(text) if text == "-" => {
            let bytes = bounded("stdin", std::io::stdin(), left, 1.0)?;
            let text = String::from_utf8(bytes).map_err(|_| Failure::usage("stdin: it is no UTF-8 text"))?;
            Ok(json!({ "text": text }))
        }
        Part::Text(text) => Ok(json!({ "text": text })),
        Part::Data(text) => data("--data", text.as_bytes()),
        Part::DataFile(path) => {
            data(&format!("--data-file {}", path.display()), &read("--data-file", path, left, 1.0)?)
        }
        Part::File(path) => {
            // Four letters for three bytes.
            let bytes = read("--file", path, left, 4.0 / 3.0)?;
            let name = path.file_name().map(|name| name.to_string_lossy().into_owned());
            let mut part = json!({"raw": STANDARD.encode(bytes), "mediaType": media_type(path)});
            if let Some(name) = name {
                part["filename"] = json!(name);
            }
            Ok(part)
        }
    }
}

fn data(what: &str, text: &[u8]) -> Result<Value, Failure> {
    let data: Value = serde_json::from_slice(text).map_err(|e| Failure::usage(format!("{what} is no JSON: {e}")))?;
    Ok(json!({"data": data, "mediaType": "application/json"}))
}

fn read(what: &str, path: &Path, left: &mut u64, grows: f64) -> Result<Vec<u8>, Failure> {
    let what = format!("{what} {}", path.display());
    let file = File::open(path).map_err(|e| Failure::usage(format!("{what}: {e}")))?;
    if file.metadata().is_ok_and(|data| data.is_dir()) {
        return Err(Failure::usage(format!("{what}: it is a directory")));
    }
    bounded(&what, file, left, grows)
}

/// All of it, if it fits into what is left.
fn bounded(what: &str, from: impl Read, left: &mut u64, grows: f64) -> Result<Vec<u8>, Failure> {
    let most = (*left as f64 / grows) as u64;
    let mut bytes = Vec::new();
    from.take(most + 1).read_to_end(&mut bytes).map_err(|e| Failure::usage(format!("{what}: {e}")))?;
    if bytes.len() as u64 > most {
        return Err(Failure::usage(format!(
            "{what}: too large. All parts together may be {} MiB, and a file grows by a third on the way; send where it \
             can be fetched instead",
            MOST.div_ceil(1 << 20)
        )));
    }
    *left -= ((bytes.len() as f64 * grows) as u64).min(*left);
    Ok(bytes)
}

/// By the ending of its name.
fn media_type(path: &Path) -> &'static str {
    let ending = path.extension().and_then(|ending| ending.to_str()).unwrap_or("").to_ascii_lowercase();
    match ending.as_str() {
        "txt" | "log" => "text/plain",
        "md" => "text/markdown",
        "html" | "htm" => "text/html",
        "csv" => "text/csv",
        "json" => "application/json",
        "xml" => "application/xml",
        "yaml" | "yml" => "application/yaml",
        "pdf" => "application/pdf",
        "zip" => "application/zip",
        "gz" => "application/gzip",
        "png" => "image/png",
        "jpg" | "jpeg" => "image/jpeg",
        "gif" => "image/gif",
        "webp" => "image/webp",
        "svg" => "image/svg+xml",
        "mp3" => "audio/mpeg",
        "wav" => "audio/wav",
        "ogg" => "audio/ogg",
        "mp4" => "video/mp4",
        "webm" => "video/webm",
        _ => "application/octet-stream",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_too_large_is_said_before_it_is_sent() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("big.PNG");
        std::fs::write(&path, vec![7; 9 << 20]).unwrap();
        let file = || Part::File(path.clone());
        let sent = parts(&[file()]).unwrap();
        assert_eq!((&sent[0]["filename"], &sent[0]["mediaType"]), (&json!("big.PNG"), &json!("image/png")));
        let failure = parts(&[file(), file()]).unwrap_err();
        assert!(failure.text.contains("big.PNG: too large. All parts together may be 16 MiB"), "{}", failure.text);
        assert!(parts(&[Part::File(dir.path().into())]).unwrap_err().text.contains("directory"));
        assert!(parts(&[Part::Data("{".into())]).unwrap_err().text.contains("--data is no JSON"));
    }
}
