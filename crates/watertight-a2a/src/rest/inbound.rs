//! What a caller asks for, read from method, path, query and body.
