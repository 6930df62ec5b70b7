//! The bulkhead against a naive model.
