//! Two published formats. docs/TRACES.md names their sources.

use anyhow::{Context as _, Result, bail};
use odafs::record::{Initial, Operation};

use super::{Builder, When};

/// Timestamp,Hostname,DiskNumber,Type,Offset,Size,ResponseTime: times in 100 ns, offsets and sizes in bytes. A disk is a
/// file and a thread.
pub fn msr(line: &str, builder: &mut Builder) -> Result<bool> {
    if line.is_empty() || line.starts_with("Timestamp,") {
        return Ok(true);
    }
    let fields: Vec<&str> = line.split(',').map(str::trim).collect();
    let &[time, host, disk, kind, offset, size, response] = &fields[..] else {
        bail!("{} fields, not 7", fields.len());
    };
    let number = |what, text: &str| number(what, text);
    let disk = number("DiskNumber", disk)?;
    let name = format!("{}-{disk}", host.replace('/', "-"));
    let file = builder.name(name.as_bytes()).context("too many disks")?;
    let when = When {
        begin_ns: number("Timestamp", time)?.saturating_mul(100),
        took_ns: Some(number("ResponseTime", response)?.min(1 << 50) * 100),
        who: u64::from(file),
    };
    let (offset, size) = (
        number("Offset", offset)?.min(1 << 61),
        number("Size", size)?.min(1 << 30),
    );
    // The disk had these bytes before, whatever was done first.
    let (start, bytes) = builder.folded(offset, size);
    builder.known(file).is_changed = false;
    builder.is_there(file, Initial::Bytes(start + bytes));
    match kind {
        "Read" => builder.read(when, file, offset, (size, size)),
        "Write" => builder.write(when, file, offset, size),
        _ => bail!("Type is {kind:?}, not Read or Write"),
    }
    Ok(true)
}

/// TIME REST.OPERATION.OBJECT ID [SIZE [FIRST LAST]]: times in ms, the rest in bytes, the last byte included. An object is a
/// file that is opened for each GET.
pub fn ibm_cos(line: &str, builder: &mut Builder) -> Result<bool> {
    let fields: Vec<&str> = line.split_ascii_whitespace().collect();
    let [time, verb, id, rest @ ..] = &fields[..] else {
        return match fields.is_empty() {
            true => Ok(true),
            false => bail!("{} fields, at least 3 are needed", fields.len()),
        };
    };
    let when = When {
        begin_ns: number("time", time)?.saturating_mul(1_000_000),
        took_ns: None,
        who: 0,
    };
    let file = builder
        .name(id.replace('/', "-").as_bytes())
        .with_context(|| format!("object {id:?} cannot be a name, or is one too many"))?;
    let most = builder.kept.fold.unwrap_or(1 << 61);
    let size = rest.first().map(|size| number("size", size)).transpose()?;
    let size = size.map(|size| size.min(most));
    let was_there = |builder: &mut Builder| {
        if builder.known(file).is_there != Some(true) {
            // A file that the trace has removed, or never put, but that exists, was put by others.
            builder.known(file).is_there = Some(true);
        }
        builder.is_there(file, Initial::Bytes(size.unwrap_or(0)));
    };
    match *verb {
        "REST.HEAD.OBJECT" => {
            was_there(builder);
            builder.push(when, Operation::Stat { file }, false);
        }
        "REST.GET.OBJECT" => {
            was_there(builder);
            let range = match rest {
                [_, first, last] => {
                    let (first, last) = (number("first", first)?, number("last", last)?);
                    let Some(bytes) = last.checked_sub(first) else {
                        bail!("the range ends before it begins");
                    };
                    (first, bytes.saturating_add(1).min(most))
                }
                _ => (0, size.context("a GET has no size")?),
            };
            builder.push(when, Operation::Open { file }, false);
            builder.read(when, file, range.0, (range.1, range.1));
        }
        "REST.PUT.OBJECT" => {
            let size = size.context("a PUT has no size")?;
            builder.is_made(file);
            builder.push(when, Operation::Create { file }, false);
            builder.write(when, file, 0, size);
        }
        "REST.DELETE.OBJECT" => {
            was_there(builder);
            builder.is_absent(file);
            builder.push(when, Operation::Remove { file }, false);
        }
        _ => return Ok(false),
    }
    Ok(true)
}

fn number(what: &str, text: &str) -> Result<u64> {
    text.parse()
        .ok()
        .with_context(|| format!("{what} is {text:?}, not a number"))
}

#[cfg(test)]
mod tests {
    use super::super::{Converted, Format, Kept, convert};
    use super::*;

    fn kept(fold: Option<u64>) -> Kept {
        Kept {
            under: Vec::new(),
            fold,
            limit: usize::MAX,
            one_thread: false,
        }
    }

    fn text(format: Format, lines: &str, fold: Option<u64>) -> Result<Converted> {
        convert(format, lines.as_bytes(), &kept(fold))
    }

    #[test]
    fn a_block_trace() {
        let lines = "Timestamp,Hostname,DiskNumber,Type,Offset,Size,ResponseTime\n\
            1000,web,0,Read,65536,4096,30\n1010,web,1,Write,8192,512,7\n1020,web,0,Read,1048576,16777216,9\n";
        let trace = text(Format::Msr, lines, None).unwrap().trace;
        assert_eq!(
            trace.to_string(),
            "odafs-trace 1\nname 0 17825792 web-0\nname 1 8704 web-1\n\
             0 3000 0 read 0 65536 4096 4096\n1000 700 1 write 1 8192 512\n\
             2000 900 0 read 0 1048576 8388608 8388608\n2000 900 0 read 0 9437184 8388608 8388608\n"
        );
        let folded = text(Format::Msr, lines, Some(1 << 20)).unwrap().trace;
        assert_eq!(folded.names[0].initial, Initial::Bytes(1 << 20));
    }

    #[test]
    fn an_object_trace() {
        let lines = "5 REST.PUT.OBJECT aa 100\n6 REST.GET.OBJECT bb 1000 10 19\n7 REST.HEAD.OBJECT aa 100\n\
            8 REST.COPY.OBJECT aa 100\n9 REST.DELETE.OBJECT bb\n10 REST.GET.OBJECT aa 100\n";
        let converted = text(Format::IbmCos, lines, None).unwrap();
        assert_eq!(converted.skipped, 1);
        assert_eq!(
            converted.trace.to_string(),
            "odafs-trace 1\nname 0 absent aa\nname 1 1000 bb\n\
             0 - 0 create 0\n0 - 0 write 0 0 100\n1000000 - 0 open 1\n1000000 - 0 read 1 10 10 10\n\
             2000000 - 0 stat 0\n4000000 - 0 remove 1\n5000000 - 0 open 0\n5000000 - 0 read 0 0 100 100\n"
        );
    }

    #[test]
    fn what_is_no_such_line_is_told_with_its_number() {
        for (format, lines, what) in [
            (Format::Msr, "1,a,0,Read,0,512,1\n1,a,0,Read,0", "line 2"),
            (Format::Msr, "1,a,0,Trim,0,512,1", "Trim"),
            (Format::Msr, "1,a,0,Read,-5,512,1", "Offset"),
            (Format::IbmCos, "1 REST.GET.OBJECT a", "no size"),
            (Format::IbmCos, "1 REST.GET.OBJECT a 9 8 2", "ends before"),
            (Format::IbmCos, "x REST.GET.OBJECT a 9", "time"),
            (Format::IbmCos, "1 REST", "fields"),
        ] {
            let told = format!("{:#}", text(format, lines, None).unwrap_err());
            assert!(told.contains(what), "{lines}: {told}");
        }
    }
}
