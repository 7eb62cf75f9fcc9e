mod directory;
mod golden;
mod in_place;
mod names;
mod round_trip;
