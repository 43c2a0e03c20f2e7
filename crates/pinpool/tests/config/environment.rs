//! Environment.
