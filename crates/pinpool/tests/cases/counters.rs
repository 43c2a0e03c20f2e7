//! Every number of the statistics: what moves it, by how much, and what must not.
