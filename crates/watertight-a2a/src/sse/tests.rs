//! Framing as the WHATWG has it, whatever the size of the reads.

use proptest::prelude::*;

use super::*;

/// Items, and the end, when `text` arrives in pieces of `size`.
fn read(text: &[u8], size: usize) -> (Vec<Item>, End) {
    let mut reader = Reader::new(Limits::default());
    let mut items = Vec::new();
    for piece in text.chunks(size) {
        reader.feed(piece, &mut items).unwrap();
    }
    (items, reader.finish())
}

fn event(data: &str) -> Item {
    Item::Event(Event { data: Bytes::copy_from_slice(data.as_bytes()), ..Event::default() })
}

#[test]
fn golden() {
    let comment = |text: &'static str| Item::Comment(Bytes::from_static(text.as_bytes()));
    let full = |id: Option<&str>, name: Option<&str>, data: &'static str| {
        Item::Event(Event {
            id: id.map(str::to_owned),
            event: name.map(str::to_owned),
            data: Bytes::from_static(data.as_bytes()),
        })
    };
    for (text, items, end) in [
        ("data: a\n\n", vec![event("a")], End::Clean),
        ("data:a\r\rdata:b\r\n\r\n", vec![event("a"), event("b")], End::Clean),
        ("\u{feff}data: 👩‍🚀\n\n", vec![event("👩‍🚀")], End::Clean),
        ("data: {\ndata: }\n\n", vec![event("{\n}")], End::Clean),
        ("data: {\r\ndata: }\r\n\r\n", vec![event("{\n}")], End::Clean),
        ("data: {\rdata: }\r\r\n", vec![event("{\n}")], End::Clean),
        ("data:  two\n\n", vec![event(" two")], End::Clean),
        ("data\n\ndata:\n\n", vec![event(""), event("")], End::Clean),
        (": hi\n:\n\n", vec![comment("hi"), comment("")], End::Clean),
        (
            "id: 7\nevent: x\ndata: a\n\ndata: b\n\n",
            vec![full(Some("7"), Some("x"), "a"), full(Some("7"), None, "b")],
            End::Clean,
        ),
        ("id: 7\n\nid:\ndata: b\n\n", vec![full(Some(""), None, "b")], End::Clean),
        ("retry: 1500\nretry: x\nother: y\n\n", vec![Item::Retry(1500)], End::Clean),
        ("event: only\n\n", vec![], End::Clean),
        (
            "data: a\n\ndata: half",
            vec![event("a")],
            End::Unterminated(Event { data: Bytes::from_static(b"half"), ..Event::default() }),
        ),
        ("data: whole\n", vec![], End::Unterminated(Event { data: Bytes::from_static(b"whole"), ..Event::default() })),
        ("event: x\n", vec![], End::Cut),
        ("da", vec![], End::Clean),
        (": ping", vec![], End::Clean),
        ("", vec![], End::Clean),
    ] {
        for size in 1..=text.len().max(1) {
            assert_eq!(read(text.as_bytes(), size), (items.clone(), end.clone()), "{text:?} by {size}");
        }
    }
}

#[test]
fn long_lines_up_to_the_limit_and_no_further() {
    for length in [65_537, 5 << 20] {
        let data = "x".repeat(length);
        let (items, end) = read(format!("data: {data}\n\n").as_bytes(), 1000);
        assert_eq!((items, end), (vec![event(&data)], End::Clean));
    }
    let limits = Limits { max_line: 10, max_event: 12 };
    let mut items = Vec::new();
    let mut reader = Reader::new(limits);
    assert_eq!(reader.feed(b"data: 1234\n\ndata: 12345", &mut items), Err(Error::LineTooLong { limit: 10 }));
    assert_eq!(items, [event("1234")]);
    assert_eq!(reader.feed(b"\n\n", &mut items), Err(Error::LineTooLong { limit: 10 }));
    assert_eq!(reader.finish(), End::Cut);
    let mut reader = Reader::new(limits);
    let long = b"data:12345\ndata:12345\ndata:12\n\n";
    assert_eq!(reader.feed(long, &mut items), Err(Error::EventTooLong { limit: 12 }));
    assert_eq!(reader.pending_bytes(), 0);
    assert_eq!(Error::EventTooLong { limit: 12 }.to_string(), "SSE event longer than 12 bytes");
}

#[test]
fn work_is_linear_in_the_bytes_even_one_at_a_time() {
    let work = |length: usize| {
        let text = format!("data: {}\n\n", "x".repeat(length));
        let mut reader = Reader::new(Limits::default());
        let mut items = Vec::new();
        for piece in text.as_bytes().chunks(1) {
            reader.feed(piece, &mut items).unwrap();
        }
        assert_eq!(items.len(), 1);
        reader.work
    };
    let (small, large) = (work(1_000), work(100_000));
    assert!(large <= small * 101, "{small} {large}");
}

#[test]
fn what_is_written_is_read() {
    let mut out = Vec::new();
    write_comment("n=3\nstate", &mut out);
    write_event(Some("1-\n2"), Some("x"), b"{\r\n \"a\":\r1}\n", &mut out);
    assert_eq!(out, b": n=3\n: state\n\nid: 1-2\nevent: x\ndata: {\ndata:  \"a\":\ndata: 1}\ndata: \n\n");
    let (items, end) = read(&out, 3);
    assert_eq!(end, End::Clean);
    assert_eq!(
        items.last(),
        Some(&Item::Event(Event {
            id: Some("1-2".to_owned()),
            event: Some("x".to_owned()),
            data: Bytes::from_static(b"{\n \"a\":\n1}\n"),
        }))
    );
}

proptest! {
    #[test]
    fn splits_play_no_part(
        text in "(data: ?|id:|event:|:|retry:1|\u{feff}|a|é|👩|\r|\n|\r\n|\n\n){0,40}",
        cuts in prop::collection::vec(0usize..200, 0..6),
    ) {
        let bytes = text.as_bytes();
        let whole = read(bytes, bytes.len().max(1));
        prop_assert_eq!(&read(bytes, 1), &whole);
        let mut cuts: Vec<usize> = cuts.into_iter().map(|cut| cut.min(bytes.len())).collect();
        cuts.sort_unstable();
        let (mut reader, mut items, mut from) = (Reader::new(Limits::default()), Vec::new(), 0);
        for cut in cuts.into_iter().chain([bytes.len()]) {
            reader.feed(&bytes[from..cut], &mut items).unwrap();
            from = cut;
        }
        prop_assert_eq!((items, reader.finish()), whole);
    }

    #[test]
    fn any_bytes_are_survived(bytes in prop::collection::vec(any::<u8>(), 0..200), line in 0usize..20, event in 0usize..20) {
        let mut reader = Reader::new(Limits { max_line: line, max_event: event });
        let mut items = Vec::new();
        for piece in bytes.chunks(7) {
            let _ = reader.feed(piece, &mut items);
            prop_assert!(reader.pending_bytes() <= line + event);
        }
        let _ = reader.finish();
    }

    #[test]
    fn any_data_written_is_read(data in "[a\r\n {}:]{0,30}") {
        let mut out = Vec::new();
        write_event(None, None, data.as_bytes(), &mut out);
        let expected = data.replace("\r\n", "\n").replace('\r', "\n");
        prop_assert_eq!(read(&out, 5).0, vec![event(&expected)]);
    }
}
