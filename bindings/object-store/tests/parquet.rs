//! Parquet files, written and read by the `parquet` crate.
#![expect(
    deprecated,
    reason = "programs read through them, and the reader that takes their place is each program's own"
)]

mod served;

use arrow_array::{Int64Array, RecordBatch, cast::AsArray as _, types::Int64Type};
use futures_util::TryStreamExt as _;
use object_store::{ObjectStoreExt as _, path::Path};
use odafs_object_store::OdafsStore;
use parquet::{
    arrow::{
        AsyncArrowWriter, ParquetRecordBatchStreamBuilder, ProjectionMask,
        async_reader::ParquetObjectReader, async_writer::ParquetObjectWriter,
    },
    file::properties::WriterProperties,
};
use served::Served;
use std::sync::Arc;

const ROWS: i64 = 100_000;
const GROUP: usize = 10_000;

/// Rows with a number and its square.
fn batch() -> RecordBatch {
    let numbers = Arc::new(Int64Array::from_iter_values(0..ROWS));
    let squares = Arc::new(Int64Array::from_iter_values((0..ROWS).map(|n| n * n)));
    RecordBatch::try_from_iter([("number", numbers as _), ("square", squares as _)]).unwrap()
}

/// Writes a table as an upload in parts, and reads one column of one group of rows, then all.
async fn written_and_read(store: OdafsStore) {
    let store = Arc::new(store);
    let at = Path::from("tables/squares.parquet");
    let batch = batch();
    let properties = WriterProperties::builder()
        .set_max_row_group_row_count(Some(GROUP))
        .build();
    let upload = ParquetObjectWriter::new(Arc::clone(&store) as _, at.clone());
    let mut writer = AsyncArrowWriter::try_new(upload, batch.schema(), Some(properties)).unwrap();
    writer.write(&batch).await.unwrap();
    writer.close().await.unwrap();

    let size = store.head(&at).await.unwrap().size;
    let open = async || {
        let reader = ParquetObjectReader::new(Arc::clone(&store) as _, at.clone());
        let reader = reader.with_file_size(size);
        ParquetRecordBatchStreamBuilder::new(reader).await.unwrap()
    };
    let builder = open().await;
    let columns = ProjectionMask::columns(builder.parquet_schema(), ["square"]);
    let some = builder.with_projection(columns).with_row_groups(vec![7]);
    let read: Vec<RecordBatch> = some.build().unwrap().try_collect().await.unwrap();
    let values = |batch: &RecordBatch, column: usize| {
        batch
            .column(column)
            .as_primitive::<Int64Type>()
            .values()
            .to_vec()
    };
    let squares: Vec<i64> = read.iter().flat_map(|batch| values(batch, 0)).collect();
    let group = 7 * GROUP as i64..8 * GROUP as i64;
    assert_eq!(squares, group.map(|n| n * n).collect::<Vec<_>>());

    let all = open().await.build().unwrap();
    let read: Vec<RecordBatch> = all.try_collect().await.unwrap();
    for column in 0..2 {
        let found: Vec<i64> = read
            .iter()
            .flat_map(|batch| values(batch, column))
            .collect();
        assert_eq!(found, values(&batch, column));
    }
}

#[tokio::test]
async fn over_shared_memory() {
    written_and_read(Served::start().store().await).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn over_plain_nfs() {
    let served = Served::start();
    written_and_read(OdafsStore::connect(&served.tcp).await.unwrap()).await;
}
