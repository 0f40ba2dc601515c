//! A job that is done once more in the same buffer.

/// A job in a buffer that its result may borrow from. `C` is what changes from one try to the next.
pub(crate) trait Job<C> {
    /// What it gives.
    type Done<'b>
    where
        Self: 'b;
    /// Why it failed. It borrows from no buffer.
    type Error: 'static;

    /// Does it.
    fn run<'b>(&self, context: &mut C, buffer: &'b mut [u8]) -> Result<Self::Done<'b>, Self::Error>
    where
        Self: 'b;

    /// Whether it is worth doing once more, from the start, after it failed so.
    fn is_done_again(&self, error: &Self::Error) -> bool;
}

/// Does a job, and where it asks for that does it once more in the same buffer.
pub(crate) fn run<'b, C, J: Job<C> + 'b>(
    job: &J,
    context: &mut C,
    buffer: &'b mut [u8],
) -> Result<J::Done<'b>, J::Error> {
    let whole: *mut [u8] = buffer;
    // SAFETY: `whole` was made from a reference that is good for 'b, which nobody uses from here on.
    match job.run(context, unsafe { &mut *whole }) {
        Err(error) if job.is_done_again(&error) => {}
        result => return result,
    }
    // SAFETY: as above; and of the first try nothing borrows from the buffer any more. Its error cannot ('static), and
    // neither the job nor the context can have kept anything of it: `Job::run` is written for every 'b that the job
    // outlives, also one that ends before whatever those two borrow does.
    job.run(context, unsafe { &mut *whole })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Fails as many times as its context says.
    struct Fails;

    impl Job<u32> for Fails {
        type Done<'b> = &'b mut [u8];
        type Error = u32;

        fn run<'b>(&self, times: &mut u32, buffer: &'b mut [u8]) -> Result<&'b mut [u8], u32>
        where
            Self: 'b,
        {
            buffer[0] += 1;
            if *times == 0 {
                return Ok(buffer);
            }
            *times -= 1;
            Err(*times)
        }

        fn is_done_again(&self, error: &u32) -> bool {
            *error < 7
        }
    }

    #[test]
    fn twice_at_most_and_only_where_the_job_asks_for_it() {
        for (mut times, expected) in [(0, Ok(1)), (1, Ok(2)), (2, Err(0)), (8, Err(7))] {
            let mut buffer = [0; 4];
            assert_eq!(run(&Fails, &mut times, &mut buffer).map(|buffer| buffer[0]), expected);
        }
    }
}
