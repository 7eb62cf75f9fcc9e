//! What the server's network adapter does: translate, check, pin.
