//! The same for version 0.13 of `object_store`, which DataFusion 55 takes.

#[path = "adapter.rs"]
mod adapter;
use ::object_store_0_13 as api;
pub use adapter::{OdafsStore, OdafsUpload};

fn put_result(e_tag: Option<String>) -> api::PutResult {
    api::PutResult {
        e_tag,
        version: None,
    }
}

fn list_result(
    common_prefixes: Vec<api::path::Path>,
    objects: Vec<api::ObjectMeta>,
) -> api::ListResult {
    api::ListResult {
        common_prefixes,
        objects,
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
    }
}
