//! Numbers that decisions are read from.

/// Numbers yet to be used. When they are used up every answer is the first one.
#[derive(Debug, Clone)]
pub struct Tape<'t> {
    rest: &'t [u16],
}

impl<'t> Tape<'t> {
    /// A tape of these numbers.
    #[must_use]
    pub fn new(numbers: &'t [u16]) -> Self {
        Tape { rest: numbers }
    }

    /// A number below `end`; 0 if that is 0.
    pub fn below(&mut self, end: usize) -> usize {
        let number = match self.rest.split_first() {
            Some((&first, rest)) => {
                self.rest = rest;
                usize::from(first)
            }
            None => 0,
        };
        number.checked_rem(end).unwrap_or(0)
    }

    /// True once in `of` times; never on an empty tape.
    pub fn once_in(&mut self, of: usize) -> bool {
        self.below(of) + 1 == of
    }

    /// One of these.
    ///
    /// # Panics
    /// If there are none.
    pub fn pick<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.below(of.len())]
    }
}
