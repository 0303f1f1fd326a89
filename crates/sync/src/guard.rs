//! The guards of the locks that own a value.
//!
//! **INV-LOCK-EXCL** While a guard exists, no other CPU accesses the value (for a read guard:
//! writes it), and what the last holder wrote is visible to the next.
//!
//! Not guaranteed: that a guard which is forgotten releases its lock.

/// Declares a guard of a lock, which reads the value and whose drop releases the lock.
///
/// Neither `Send` nor `Sync` (INV-LOCK-CPU): a guard that is `Sync` would share `&T` between CPUs,
/// although a spin lock requires only `T: Send`.
macro_rules! guard {
    ($(#[$about:meta])* $guard:ident of $lock:ident, released by |$held:ident| $release:expr) => {
        $(#[$about])*
        #[must_use]
        pub struct $guard<'a, T, R: Rank, B: Backend> {
            lock: &'a $lock<T, R, B>,
            here: $crate::on_this_cpu::OnThisCpu,
        }

        impl<T, R: Rank, B: Backend> ::core::ops::Deref for $guard<'_, T, R, B> {
            type Target = T;

            #[inline]
            fn deref(&self) -> &T {
                // SAFETY: INV-LOCK-EXCL – this guard exists, so no guard exists that can write, or
                // it is this one.
                unsafe { &*self.lock.value.get() }
            }
        }

        impl<T, R: Rank, B: Backend> Drop for $guard<'_, T, R, B> {
            #[inline]
            fn drop(&mut self) {
                let $held = self.lock;
                $release;
                rank::leave::<R, B>();
            }
        }
    };
}
pub(crate) use guard;

/// Lets a guard write, which excludes all other guards of its lock.
macro_rules! guard_mut {
    ($guard:ident) => {
        impl<T, R: Rank, B: Backend> ::core::ops::DerefMut for $guard<'_, T, R, B> {
            #[inline]
            fn deref_mut(&mut self) -> &mut T {
                // SAFETY: INV-LOCK-EXCL – this guard exists and is borrowed mutably, so no other
                // reference to the value exists.
                unsafe { &mut *self.lock.value.get() }
            }
        }
    };
}
pub(crate) use guard_mut;
