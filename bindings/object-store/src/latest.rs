//! The interface of `object_store` 0.14.

#[path = "adapter.rs"]
mod adapter;
use ::object_store as api;
pub use adapter::{OdafsStore, OdafsUpload};

fn put_result(e_tag: Option<String>) -> api::PutResult {
    api::PutResult {
        e_tag,
        version: None,
        extensions: Default::default(),
    }
}

fn list_result(
    common_prefixes: Vec<api::path::Path>,
    objects: Vec<api::ObjectMeta>,
) -> api::ListResult {
    api::ListResult {
        common_prefixes,
        objects,
        extensions: Default::default(),
    }
}

fn get_result(
    payload: api::GetResultPayload,
    meta: api::ObjectMeta,
    range: std::ops::Range<u64>,
) -> api::GetResult {
    api::GetResult {
        payload,
        meta,
        range,
        attributes: Default::default(),
        extensions: Default::default(),
    }
}
