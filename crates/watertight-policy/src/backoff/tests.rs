//! Ladder, header and pacing.
