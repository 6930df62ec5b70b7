//! The breaker, case by case and against its promises.
