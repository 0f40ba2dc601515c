//! Records that a tokio program waits for: `cargo test -p corelo-loader --features tokio --test tokio`.

use std::time::Duration;

use corelo_core::uapi::map_type;
use corelo_loader::events::{AsyncRing, RingBuffer};
use corelo_loader::objects::{self, GrowingLog, MapSpec, Memlock, ProgramSpec, TestRun};
use corelo_tests::endian::Endian;
use corelo_tests::insn::{encode, ring_output};
use corelo_tests::kernel::{Feature, has};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use tokio::time::timeout;

/// A socket filter that writes `value` as a record of 8 bytes.
fn writer(ring: BorrowedFd<'_>, value: i32) -> OwnedFd {
    let insns = encode(&ring_output(ring, value), Endian::native());
    objects::load_program(&ProgramSpec::new(1), &insns, &mut GrowingLog::new(4096, 1 << 20)).unwrap()
}

fn write(program: BorrowedFd<'_>) {
    let packet = [0; 64];
    objects::prog_test_run(program, &mut TestRun { data_in: &packet, ..TestRun::default() }).unwrap();
}

fn number(record: &[u8]) -> u64 {
    u64::from_ne_bytes(record.try_into().unwrap())
}

#[tokio::test]
async fn records_wake_the_task_and_none_is_lost_where_it_stops_waiting() {
    if !has(&[Feature::RingBuffers]) {
        return;
    }
    let map = objects::create_map(
        &MapSpec { map_type: map_type::RINGBUF, max_entries: 1 << 16, ..MapSpec::default() },
        Memlock::RaiseIfRefused,
    )
    .unwrap();
    let programs = [1, 2, 3].map(|value| writer(map.as_fd(), value));
    let second = Duration::from_secs(10);
    // What was there before tokio knew of it.
    write(programs[0].as_fd());
    let mut ring = AsyncRing::new(RingBuffer::new(map.as_fd()).unwrap()).unwrap();
    assert_eq!(timeout(second, ring.next(number)).await.unwrap(), Ok(1));
    // An empty ring is waited for, and the wait may end without a record.
    assert!(timeout(Duration::from_millis(20), ring.next(number)).await.is_err());
    write(programs[1].as_fd());
    write(programs[2].as_fd());
    assert_eq!(timeout(second, ring.next(number)).await.unwrap(), Ok(2));
    assert_eq!(timeout(second, ring.next(number)).await.unwrap(), Ok(3));
    // Each of many that another thread writes while this one reads, so that it is empty again and again.
    const MANY: u64 = 20_000;
    let last = programs[0].try_clone().unwrap();
    let thread = std::thread::spawn(move || (0..MANY).for_each(|_| write(last.as_fd())));
    for _ in 0..MANY {
        assert_eq!(timeout(second, ring.next(number)).await.expect("a wake-up was lost"), Ok(1));
    }
    thread.join().unwrap();
    assert_eq!(ring.get_mut().unread(), 0);
    assert_eq!(ring.into_inner().consume(|_| {}), Ok(0));
}
