//! The bootable image: the kernel in `pagewright-linux` on the machine in `pagewright-hal`.
//!
//! Nothing stands here but who is started. Firmware enters at `hal`'s boot code.
#![no_std]
#![no_main]

pagewright_hal::kernel!(pagewright_linux::Linux::new());
