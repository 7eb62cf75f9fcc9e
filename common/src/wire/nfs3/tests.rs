mod directory;
mod golden;
mod in_place;
mod round_trip;
