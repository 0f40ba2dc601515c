//! Errors of `corelo-core`, encoded by defmt as on a device and decoded from this program's own table of formats.
//!
//! `cargo run --manifest-path targets/defmt-host/Cargo.toml`: exit 0 and one line for each, or a panic that says what differs.
#![deny(unsafe_code)]

use std::sync::Mutex;

use corelo_core::arena::{Arena, Part};
use corelo_core::btf::{Btf, TypeId};
use corelo_core::link::{LinkCause, LinkError};
use corelo_core::object::Object;
use corelo_core::relo::decision::Verdict;
use defmt_decoder::{DecodeError, Table};

/// What a device would send down its wire.
static WIRE: Mutex<(defmt::Encoder, Vec<u8>)> = Mutex::new((defmt::Encoder::new(), Vec::new()));

#[defmt::global_logger]
struct Wire;

fn with_wire(job: impl FnOnce(&mut defmt::Encoder, &mut dyn FnMut(&[u8]))) {
    let mut wire = WIRE.lock().unwrap();
    let (encoder, bytes) = &mut *wire;
    job(encoder, &mut |more| bytes.extend_from_slice(more));
}

#[expect(unsafe_code, reason = "the trait is unsafe to implement")]
// SAFETY: there is one thread, so no acquire comes between an acquire and its release.
unsafe impl defmt::Logger for Wire {
    fn acquire() {
        with_wire(|encoder, out| encoder.start_frame(out));
    }

    unsafe fn flush() {}

    unsafe fn release() {
        with_wire(|encoder, out| encoder.end_frame(out));
    }

    unsafe fn write(bytes: &[u8]) {
        with_wire(|encoder, out| encoder.write(bytes, out));
    }
}

fn main() {
    let mut buffer = [0u64; 4];
    let full = {
        let mut arena = Arena::new(zerocopy::IntoBytes::as_mut_bytes(&mut buffer[..]));
        arena.slice::<u32>(100, Part::KernelIndex).unwrap_err()
    };
    defmt::error!("{}", full);
    let object = Object::parse(b"no ELF").unwrap_err();
    defmt::error!("{}", object);
    let btf = Btf::parse(&[0; 24]).unwrap_err();
    defmt::error!("{}", btf);
    let verdict = Verdict::Ambiguous { first: TypeId(7), second: TypeId(9) };
    let link = LinkError { function: 3, insn_idx: 12, cause: LinkCause::Undecided { relo_idx: 5, verdict } };
    defmt::error!("{}", link);

    // What Debug says is what a reader of the log is to see, whatever the exact spelling of either.
    let want = [format!("{full:?}"), format!("{object:?}"), format!("{btf:?}"), format!("{link:?}")];

    let program = std::fs::read("/proc/self/exe").expect("this program's own file");
    let table = Table::parse(&program).expect("a table of formats").expect("a .defmt section");
    let mut decoder = table.new_stream_decoder();
    decoder.received(&WIRE.lock().unwrap().1);
    for want in &want {
        let frame = match decoder.decode() {
            Ok(frame) => frame.display_message().to_string(),
            Err(DecodeError::UnexpectedEof) => panic!("the wire ends before {want}"),
            Err(DecodeError::Malformed) => panic!("malformed instead of {want}"),
        };
        println!("{frame}");
        assert_eq!(&frame, want);
    }
    assert!(matches!(decoder.decode(), Err(DecodeError::UnexpectedEof)), "more than was sent");
}
