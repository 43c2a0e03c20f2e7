#![doc = include_str!("../README.md")]

mod abi;
mod api;
mod capture;
pub mod codes;
mod config;
mod context;
mod control;
mod copies;
mod device_memory;
mod events;
mod exit;
mod fault;
mod host_memory;
mod state;
mod streams;
mod work;

pub use control::{Control, child, install, library};
