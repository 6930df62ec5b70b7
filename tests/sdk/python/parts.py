"""What the agents of these tests have to tell, and the clients ask for."""

EXTENSION = "https://example.com/extensions/politeness/v1"

OFFER = {
    "rooms": [101, 102],
    "price": 12.5,
    "below": -3,
    "note": None,
    "free": False,
    "name": "Zimmer „7“ \u2603",
    "nested": {"deep": [{"a": None}, [1, [2.25]], {}, []]},
}
