//! The bootable image: the kernel in `pagewright-linux` on the machine in `pagewright-hal`.
//!
//! This crate only names the kernel. Firmware enters at the boot code of `hal`.
#![no_std]
#![no_main]

pagewright_hal::kernel!(pagewright_linux::Linux::new());
